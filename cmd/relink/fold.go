package main

// foldMinimum is the smallest number of like things that become one line.
const foldMinimum = 6

// foldEqual groups the elements that say the same, in the order of each group's first element. Fewer than foldMinimum like
// elements stay apart, each in a group of its own. A verbose screen folds nothing.
func foldEqual[T any](elements []T, s *screen, keyOf func(T) string) [][]T {
	alike := map[string]int{}
	for _, element := range elements {
		alike[keyOf(element)]++
	}
	var groups [][]T
	groupIndex := map[string]int{}
	for _, element := range elements {
		key := keyOf(element)
		i, grouped := groupIndex[key]
		switch {
		case s.verbose || alike[key] < foldMinimum:
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
