package cniplugin

import "strings"

// Nearest returns the name that s probably means, "" if it is close to none. Case, '_' and '-' do not count.
//
// A mistake is a letter that is missing, too many or another, or two neighbours that have changed places. A name is close if it has
// one mistake. In short names most mistakes make another word, so fewer count:
//   - The first letter is never wrong: "pmtu" is no "mtu".
//   - With up to five letters, no letter may be another ("node" is no "mode"), and a letter too many must be an s at the end ("vlans").
//   - With up to three letters, no letter may be missing either: "ns" is no "dns".
func Nearest(s string, names ...string) (near string) {
	written := normalized(s)
	for _, name := range names {
		switch key := normalized(name); {
		case key == written:
			return name
		case near == "" && isTypo(written, key):
			near = name
		}
	}
	return near
}

// isTypo says whether one mistake makes the written name of the known one.
func isTypo(written, name string) bool {
	if written == "" || name == "" || written[0] != name[0] {
		return false
	}
	long := len(name) > 5
	a, b := written, name
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	switch [2]int{len(a), len(b)} {
	case [2]int{0, 1}:
		return len(name) > 3
	case [2]int{1, 0}:
		return long || written == name+"s"
	case [2]int{1, 1}:
		return long
	case [2]int{2, 2}:
		return a[0] == b[1] && a[1] == b[0]
	}
	return false
}

// normalized returns a name in the form in which names are compared.
func normalized(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(strings.TrimSpace(s)))
}
