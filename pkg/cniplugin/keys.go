package cniplugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-json-experiment/json/jsontext"
)

// Keys are the keys that a program knows in an object of a configuration.
type Keys struct {
	// Program is the program's name, such as relink-macvlan.
	Program string
	// Accepted are the keys that the program reads, and those that the specification and the runtimes add.
	Accepted []Key
	// Elsewhere are keys that belong to another plugin or to another place in the configuration.
	Elsewhere []Hint
	// Shared says that others write keys into the object too, as runtimes do in "runtimeConfig". A similar key
	// is taken for theirs.
	Shared bool
}

// Key is a known key.
type Key struct {
	Name string
	// Nested are the keys of the object at this key. If there is a list, they are those of each object in it. nil says
	// that nobody looks into the value.
	Nested *Keys
}

// KeyNames returns known keys into whose values nobody looks.
func KeyNames(names ...string) (keys []Key) {
	for _, name := range names {
		keys = append(keys, Key{Name: name})
	}
	return keys
}

// Hint says what to do about a key that is wrong where it is.
type Hint struct {
	// Key is in small letters, without '_' and '-'. In a comparison these and the case do not count.
	Key string
	// Remedy is the end of the message: whose key it is, and what to write instead.
	Remedy string
}

// Hints returns hints with the same remedy for several keys.
func Hints(remedy string, keys ...string) (hints []Hint) {
	for _, key := range keys {
		hints = append(hints, Hint{Key: key, Remedy: remedy})
	}
	return hints
}

// HintsFor returns the hints for words that people write for a key. program is the program's name, as in Keys.
func HintsFor(program, key string, words ...string) []Hint {
	return Hints(suggestion(program, key), words...)
}

func suggestion(program, key string) string {
	return fmt.Sprintf("no such key of %s; did you mean %q?", program, key)
}

// UnknownKey is a key that the program does not know.
type UnknownKey struct {
	// Key is the key with its place: "ipam.ranges[0][0].subnte".
	Key string
	// Err is the error, with code 7. It is nil for a key that is allowed.
	Err error
}

// Examine returns the strange keys in b, in the order of the text. path is the place of b in the configuration, "" for
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
func (k *Keys) Examine(path string, b []byte) ([]UnknownKey, error) {
	e := examination{decoder: jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true)), path: path}
	if err := e.value(k); err != nil {
		return nil, syntaxError(path, b, err)
	}
	if _, err := e.decoder.ReadToken(); err == nil || !errors.Is(err, io.EOF) {
		return nil, syntaxError(path, b, err)
	}
	return e.unknownKeys, nil
}

// Decode reads the value at the path into part, as DecodeAll does. It looks at the keys first: a misspelt key explains best why another is
// missing.
func (k *Keys) Decode(path string, b []byte, part any) (errs Problems) {
	unknown, err := k.Examine(path, b)
	if err != nil {
		return Problems{err}
	}
	for _, u := range unknown {
		errs.Add(u.Err)
	}
	return append(errs, DecodeAll(path, b, part)...)
}

// examination is one pass through a configuration.
type examination struct {
	decoder *jsontext.Decoder
	// path is the place of the text in the configuration.
	path        string
	unknownKeys []UnknownKey
}

// value reads the next value. Only an object, or a list of objects, has keys.
func (e *examination) value(k *Keys) error {
	if k == nil {
		return e.decoder.SkipValue()
	}
	switch e.decoder.PeekKind() {
	case '{':
		return e.object(k)
	case '[':
		_, err := e.decoder.ReadToken()
		for err == nil && e.decoder.PeekKind() != ']' {
			err = e.value(k)
		}
		if err == nil {
			_, err = e.decoder.ReadToken()
		}
		return err
	}
	return e.decoder.SkipValue()
}

// object reads an object with the keys k. The decoder limits the depth.
func (e *examination) object(k *Keys) error {
	if _, err := e.decoder.ReadToken(); err != nil {
		return err
	}
	counts := make([]int, len(k.Accepted))
	for e.decoder.PeekKind() != '}' {
		token, err := e.decoder.ReadToken()
		if err != nil {
			return err
		}
		var nested *Keys
		name := token.String()
		i := k.index(name)
		if i >= 0 {
			nested = k.Accepted[i].Nested
			if counts[i]++; counts[i] == 2 {
				e.add("it is there twice; keep one")
			}
		} else if similar := k.indexFold(name); similar >= 0 {
			e.add(fmt.Sprintf("case counts in keys; write %q", k.Accepted[similar].Name))
		} else {
			e.add(k.remedy(name))
		}
		if err := e.value(nested); err != nil {
			return err
		}
	}
	_, err := e.decoder.ReadToken()
	return err
}

// remedy says what to do about an unknown key, "" for nothing.
func (k *Keys) remedy(name string) string {
	if isForeign(name) {
		return ""
	}
	if i := slices.IndexFunc(k.Elsewhere, func(h Hint) bool { return h.Key == normalized(name) }); i >= 0 {
		return k.Elsewhere[i].Remedy
	}
	if near := k.nearest(name); near != "" {
		return suggestion(k.Program, near)
	}
	return ""
}

// add adds the key that was read last. It is allowed if there is no remedy.
func (e *examination) add(remedy string) {
	unknown := UnknownKey{Key: KeyPath(e.path, e.decoder.StackPointer())}
	if remedy != "" {
		unknown.Err = keyError(unknown.Key, remedy)
	}
	e.unknownKeys = append(e.unknownKeys, unknown)
}

// joinPath returns the place of a key: path is that of its object.
func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (k *Keys) index(name string) int {
	return slices.IndexFunc(k.Accepted, func(key Key) bool { return key.Name == name })
}

func (k *Keys) indexFold(name string) int {
	return slices.IndexFunc(k.Accepted, func(key Key) bool { return strings.EqualFold(key.Name, name) })
}

// isForeign says whether a key looks like a comment, or like one of libcni and Kubernetes.
func isForeign(name string) bool {
	return strings.ContainsAny(name, "./:") || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#")
}

// nearest returns the known key that is closest to the name, "" if none is close.
func (k *Keys) nearest(name string) string {
	if k.Shared {
		return ""
	}
	var names []string
	for _, key := range k.Accepted {
		names = append(names, key.Name)
	}
	return Nearest(name, names...)
}

// keyError says that a configuration must not have the key, and what to do about it. Its code is 7.
func keyError(key, remedy string) error {
	return Error(types.ErrInvalidNetworkConfig, "invalid configuration key %q: %s", clip(key), remedy)
}
