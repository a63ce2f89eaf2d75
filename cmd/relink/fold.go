package main

import "github.com/relink-cni/relink/pkg/printable"

// foldEqual groups the elements that say the same. A verbose screen folds nothing.
func foldEqual[T any](elements []T, s *screen, keyOf func(T) string) (groups [][]T) {
	if !s.verbose {
		return printable.Fold(elements, keyOf)
	}
	for _, element := range elements {
		groups = append(groups, []T{element})
	}
	return groups
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
