package cniplugin

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Keys are the keys that a program knows in an object of a configuration.
type Keys struct {
	// Of is the program's name, such as relink-macvlan.
	Of string
	// Known are the keys that the program reads, and those that the specification and the runtimes add.
	Known []Key
	// Elsewhere are keys that belong to another plugin or to another place in the configuration.
	Elsewhere []Hint
	// Shared says that others write keys into the object too, as runtimes do in "runtimeConfig". A similar key
	// is taken for theirs.
	Shared bool
}

// Key is a known key.
type Key struct {
	Name string
	// In are the keys of the object at this key. If there is a list, they are those of each object in it. nil says
	// that nobody looks into the value.
	In *Keys
}

// Hint says what to do about a key that is wrong where it is.
type Hint struct {
	// Key is in small letters, without '_' and '-'. In a comparison these and the case do not count.
	Key string
	// Do is the end of the message: whose key it is, and what to write instead.
	Do string
}

// Mean returns the hints for words that people write for a key. of is the program's name, as in Keys.
func Mean(of, key string, words ...string) (all []Hint) {
	for _, word := range words {
		all = append(all, Hint{Key: word, Do: didYouMean(of, key)})
	}
	return all
}

func didYouMean(of, key string) string {
	return fmt.Sprintf("no such key of %s; did you mean %q?", of, key)
}

// Strange is a key that the program does not know.
type Strange struct {
	// Key is the key with its place: "ipam.ranges[0][0].subnte".
	Key string
	// Err is the error, with code 7. It is nil for a key that is allowed.
	Err error
}

// Examine returns the strange keys in b, in the order of the text. at is the place of b in the configuration, "" for
// all of it. Text that is no JSON is an error with code 6.
//
// Four sorts of keys have an error:
//   - A known key in another case. Some readers of JSON would not take it, and others would mix it up with the known one.
//   - A known key that is there twice.
//   - A key of Elsewhere.
//   - A key that is close to a known one (Nearest).
//
// All others are allowed. A configuration has keys for runtimes, for Multus and for plugins that relink does not
// know. A key with a dot or a slash is never close to a known one: libcni and Kubernetes write their keys so.
func (k *Keys) Examine(at string, b []byte) ([]Strange, error) {
	e := examination{decoder: jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true))}
	if err := e.value(at, k); err != nil {
		return nil, syntaxError(at, b, err)
	}
	if _, err := e.decoder.ReadToken(); err == nil || !isEOF(err) {
		return nil, syntaxError(at, b, err)
	}
	return e.strange, nil
}

// Check returns the first error that Examine finds.
func (k *Keys) Check(at string, b []byte) error {
	strange, err := k.Examine(at, b)
	if err != nil {
		return err
	}
	for _, s := range strange {
		if s.Err != nil {
			return s.Err
		}
	}
	return nil
}

// examination is one pass through a configuration.
type examination struct {
	decoder *jsontext.Decoder
	strange []Strange
}

// value reads the next value. Only an object, or a list of objects, has keys.
func (e *examination) value(at string, k *Keys) error {
	if k == nil {
		return e.decoder.SkipValue()
	}
	switch e.decoder.PeekKind() {
	case '{':
		return e.object(at, k)
	case '[':
		if _, err := e.decoder.ReadToken(); err != nil {
			return err
		}
		for i := 0; e.decoder.PeekKind() != ']'; i++ {
			if err := e.value(fmt.Sprintf("%s[%d]", at, i), k); err != nil {
				return err
			}
		}
		_, err := e.decoder.ReadToken()
		return err
	}
	return e.decoder.SkipValue()
}

// object reads an object with the keys k. The decoder limits the depth.
func (e *examination) object(at string, k *Keys) error {
	if _, err := e.decoder.ReadToken(); err != nil {
		return err
	}
	seen := make([]int, len(k.Known))
	var misspelt []misspelt
	for e.decoder.PeekKind() != '}' {
		token, err := e.decoder.ReadToken()
		if err != nil {
			return err
		}
		var in *Keys
		name := token.String()
		i := k.index(name)
		if i >= 0 {
			in = k.Known[i].In
			if seen[i]++; seen[i] == 2 {
				e.add(at, name, "it is there twice; keep one")
			}
		} else if same := k.indexOfSameLetters(name); same >= 0 {
			misspelt = append(misspelt, struct{ place, known int }{len(e.strange), same})
			e.add(at, name, "")
		} else {
			e.unknown(at, k, name)
		}
		if err := e.value(within(at, name), in); err != nil {
			return err
		}
	}
	for _, m := range misspelt {
		e.explain(m.place, k.Known[m.known].Name, seen[m.known] > 0)
	}
	_, err := e.decoder.ReadToken()
	return err
}

// misspelt is a known key in another case: its index among the strange keys, and the index of the known
// one. Only the end of the object tells whether the known one is there too.
type misspelt = struct{ place, known int }

// explain says what to do about a known key in another case.
func (e *examination) explain(place int, known string, there bool) {
	do := fmt.Sprintf("case counts in keys; write %q", known)
	if there {
		do = fmt.Sprintf("%q is there too; keep one, written %q", known, known)
	}
	e.strange[place].Err = KeyError(e.strange[place].Key, do)
}

func (e *examination) unknown(at string, k *Keys, name string) {
	if isForeign(name) {
		e.strange = append(e.strange, Strange{Key: within(at, name)})
		return
	}
	if i := slices.IndexFunc(k.Elsewhere, func(h Hint) bool { return h.Key == plain(name) }); i >= 0 {
		e.add(at, name, k.Elsewhere[i].Do)
		return
	}
	if near := k.near(name); near != "" {
		e.add(at, name, didYouMean(k.Of, near))
		return
	}
	e.strange = append(e.strange, Strange{Key: within(at, name)})
}

func (e *examination) add(at, name, do string) {
	key := within(at, name)
	e.strange = append(e.strange, Strange{Key: key, Err: KeyError(key, do)})
}

// within returns the place of a key: at is that of its object.
func within(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func (k *Keys) index(name string) int {
	return slices.IndexFunc(k.Known, func(known Key) bool { return known.Name == name })
}

func (k *Keys) indexOfSameLetters(name string) int {
	return slices.IndexFunc(k.Known, func(known Key) bool { return strings.EqualFold(known.Name, name) })
}

// isForeign says whether a key looks like a comment, or like one of libcni and Kubernetes.
func isForeign(name string) bool {
	return strings.ContainsAny(name, "./:") || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#")
}

// near returns the known key that is closest to the name, "" if none is close.
func (k *Keys) near(name string) string {
	if k.Shared {
		return ""
	}
	var names []string
	for _, known := range k.Known {
		names = append(names, known.Name)
	}
	return Nearest(name, names...)
}

// KeyError says that a configuration must not have the key, and what to do about it. Its code is 7.
func KeyError(key, do string) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("invalid configuration key %q: %s", clip(key), do), "")
}
