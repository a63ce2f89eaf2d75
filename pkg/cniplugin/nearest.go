package cniplugin

import (
	"slices"
	"strings"
)

// Nearest returns the name that s probably means, "" if it is close to none. Case, '_' and '-' do not count.
//
// A mistake is a letter that is missing, too many or another, or two letters that have changed places. A name is close
// if it has one mistake, or two where both names have at least eight letters. In short names most mistakes make another
// word, so fewer count:
//   - The first letter is never wrong: "pmtu" is no "mtu".
//   - With up to five letters, no letter may be another ("node" is no "mode"), and a letter too many must be an s at the end ("vlans").
//   - With up to three letters, no letter may be missing either: "ns" is no "dns".
func Nearest(s string, names ...string) string {
	written := normalized(s)
	best, bestCount := "", len(s)+1
	for _, name := range names {
		if d, ok := mistakes(written, normalized(name)); ok && d < bestCount {
			best, bestCount = name, d
		}
	}
	return best
}

// mistakes counts those that make the written name of the known one. ok says whether they are few enough.
func mistakes(written, name string) (count int, ok bool) {
	if written == name {
		return 0, true
	}
	if written == "" || name == "" {
		return 0, false
	}
	limit := 1
	if min(len(written), len(name)) >= 8 {
		limit = 2
	}
	// The lengths alone tell that it is too far.
	if d := len(written) - len(name); d > limit || -d > limit {
		return 0, false
	}
	if written[0] != name[0] {
		return 0, false
	}
	count = distance(written, name)
	return count, count <= limit && (len(name) > 5 || isTypo(written, name))
}

// isTypo says whether the one mistake in a short name is of the hand: it does not make another word.
func isTypo(written, name string) bool {
	switch {
	case len(written) == len(name):
		return sameLetters(written, name)
	case len(written) < len(name):
		return len(name) > 3
	}
	return written == name+"s"
}

// normalized returns a name in the form in which names are compared.
func normalized(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return r
	}, strings.ToLower(strings.TrimSpace(s)))
}

func sameLetters(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values([]byte(a))), slices.Sorted(slices.Values([]byte(b))))
}

// distance returns how many mistakes make b of a. No part is changed twice (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
