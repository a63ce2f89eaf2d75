package cniplugin

import "strings"

// Nearest returns the name that s probably means, "" if it is close to none. Case, '_' and '-' do not count.
//
// A mistake is a letter that is missing, too many or another, or two letters that have changed places. A name of up to
// five letters may have one mistake, and a longer one two. In a name of up to three letters, a missing or
// another letter makes another word, such as "ns" for "dns" or "map" for "mac". Such a word is not close.
func Nearest(s string, names ...string) string {
	written := plain(s)
	best, least := "", len(s)+1
	for _, name := range names {
		known := plain(name)
		limit := 2
		if min(len(known), len(written)) <= 5 {
			limit = 1
		}
		// The lengths alone say that it is too far.
		if d := len(written) - len(known); d > limit || -d > limit {
			continue
		}
		d := distance(written, known)
		if len(known) <= 3 && (len(written) < len(known) || len(known) == len(written) && !sameLetters(written, known)) {
			continue
		}
		if d <= limit && d < least {
			best, least = name, d
		}
	}
	return best
}

// plain returns a name in the form in which names are compared.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

func sameLetters(a, b string) bool {
	var count [256]int
	for i := range len(a) {
		count[a[i]]++
		count[b[i]]--
	}
	return count == [256]int{}
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
