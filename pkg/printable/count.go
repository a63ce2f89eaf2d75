package printable

import (
	"fmt"
	"slices"
	"strings"
)

// Count is a number of things: "1 pod", "2 pods", "2 sandboxes".
func Count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "x"), strings.HasSuffix(thing, "ss"):
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Shorten returns what of the text fits into that many bytes: its end tells that something is missing.
func Shorten(text string, size int) string {
	const ellipsis = " ..."
	if len(text) <= size {
		return text
	}
	return strings.ToValidUTF8(text[:size-len(ellipsis)], "") + ellipsis
}

// First joins the first of the texts, up to the limit, and counts the others: "a, b, and 3 more".
func First(texts []string, limit int, separator string) string {
	if rest := len(texts) - limit; rest > 0 {
		texts = append(slices.Clone(texts[:limit]), fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(texts, separator)
}

// foldMinimum is the smallest number of like things that become one line.
const foldMinimum = 6

// Fold groups the elements with the same key, in the order of each group's first element. Fewer than six like elements stay apart, each
// in a group of its own.
func Fold[T any](elements []T, keyOf func(T) string) (groups [][]T) {
	alike := map[string]int{}
	for _, element := range elements {
		alike[keyOf(element)]++
	}
	groupIndex := map[string]int{}
	for _, element := range elements {
		key := keyOf(element)
		i, grouped := groupIndex[key]
		switch {
		case alike[key] < foldMinimum:
			groups = append(groups, []T{element})
		case grouped:
			groups[i] = append(groups[i], element)
		default:
			groupIndex[key] = len(groups)
			groups = append(groups, []T{element})
		}
	}
	return groups
}
