package netfilter

import (
	"errors"
	"slices"
	"strings"
)

// listing is what iptables -S or iptables-save prints.
type listing struct {
	// rules are those of each chain that is there.
	rules map[string][]Rule
	// policies are those of the built-in chains.
	policies map[string]string
}

func emptyListing() listing {
	return listing{rules: map[string][]Rule{}, policies: map[string]string{}}
}

// parse reads the output of iptables -S of a table or a chain, or of iptables-save. With several tables,
// the chains of all are together.
func parse(text string) (listing, error) {
	l := emptyListing()
	lines, err := split(text)
	for _, words := range lines {
		l.add(words)
	}
	return l, err
}

// add takes one line. The name of a table and COMMIT say nothing.
func (l *listing) add(words []string) {
	first, rest := words[0], words[1:]
	switch {
	case first == "-P" && len(rest) >= 2:
		l.chain(rest[0], rest[1])
	case first == "-N" && len(rest) >= 1:
		l.chain(rest[0], "-")
	case first == "-A" && len(rest) >= 1:
		l.rules[rest[0]] = append(l.rules[rest[0]], Rule(rest[1:]))
	case strings.HasPrefix(first, ":") && len(rest) >= 1:
		l.chain(first[1:], rest[0])
	}
}

// chain takes a chain. One that was made by somebody has the policy "-".
func (l *listing) chain(name, policy string) {
	l.rules[name] = slices.Clip(l.rules[name])
	if policy != "-" {
		l.policies[name] = policy
	}
}

func (l *listing) has(chain string) bool {
	_, ok := l.rules[chain]
	return ok
}

// split returns the words of each line. A word with blanks has quotes, and a backslash before each quote and each
// backslash in it. Quotes can go over several lines: the comment of a rule can have a line break.
func split(text string) ([][]string, error) {
	var lines [][]string
	var words []string
	var word strings.Builder
	inWord, quoted := false, false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '#' && len(words) == 0 && !inWord:
			i = endOfLine(text, i) - 1 // Its quotes mean nothing.
		case c == '"':
			quoted, inWord = !quoted, true
		case c == '\\' && quoted && i+1 < len(text):
			i++
			word.WriteByte(text[i])
		case !quoted && (c == ' ' || c == '\n'):
			endWord()
			if c == '\n' && len(words) > 0 {
				lines, words = append(lines, words), nil
			}
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quoted {
		return lines, errors.New("the output ends inside of quotes")
	}
	if endWord(); len(words) > 0 {
		lines = append(lines, words)
	}
	return lines, nil
}

func endOfLine(text string, start int) int {
	if n := strings.IndexByte(text[start:], '\n'); n >= 0 {
		return start + n
	}
	return len(text)
}
