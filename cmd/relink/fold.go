package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/printable"
)

// foldEqual groups the elements that say the same. A verbose screen folds nothing.
func foldEqual[T any](elements []T, s *cli.Screen, keyOf func(T) string) (groups [][]T) {
	if !s.Verbose {
		return printable.Fold(elements, keyOf)
	}
	for _, element := range elements {
		groups = append(groups, []T{element})
	}
	return groups
}

// reportLine is what is to be said of one thing. Lines that say the same become one.
type reportLine struct {
	// head is what becomes of the thing, or which sort of finding it is. It can be empty.
	head string
	// subject names the thing. short is its name in a list, noun is what it is.
	subject, short, noun string
	text                 string
	// group is the text of many such lines, where their texts differ in a detail. It is empty if they do not.
	group string
}

// writeLines writes one line for each thing, or one line for many that say the same.
func writeLines(lines []reportLine, s *cli.Screen) {
	for _, alike := range foldEqual(lines, s, func(l reportLine) string { return l.head + "\x00" + cmp.Or(l.group, l.text) }) {
		l := alike[0]
		if len(alike) > 1 {
			l.subject = fmt.Sprintf("%s (%s)", printable.Count(len(alike), l.noun), firstNames(alike, func(l reportLine) string { return l.short }, s))
			if slices.ContainsFunc(alike, func(line reportLine) bool { return line.text != l.text }) {
				l.text = l.group + ". One of them: " + l.text
			}
		}
		s.Printf("%s", strings.Join(slices.DeleteFunc([]string{l.head, l.subject, l.text}, func(part string) bool { return part == "" }), ": "))
	}
}

// firstNames names the first few of them, each of them once. A verbose screen names all.
func firstNames[T any](list []T, nameOf func(T) string, s *cli.Screen) string {
	names, shown := cli.Unique(cli.Texts(list, nameOf)), 3
	if s.Verbose {
		shown = len(names)
	}
	return printable.First(names, shown, ", ")
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
