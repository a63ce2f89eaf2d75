package main

// foldFrom is the smallest number of like things that become one line.
const foldFrom = 6

// folded groups the elements that say the same, in the order of each group's first element. Fewer than foldFrom like
// elements stay apart, each in a group of its own. A verbose screen folds nothing.
func folded[T any](all []T, s *screen, says func(T) string) [][]T {
	alike := map[string]int{}
	for _, one := range all {
		alike[says(one)]++
	}
	var groups [][]T
	at := map[string]int{}
	for _, one := range all {
		key := says(one)
		i, begun := at[key]
		switch {
		case s.verbose || alike[key] < foldFrom:
			groups = append(groups, []T{one})
		case begun:
			groups[i] = append(groups[i], one)
		default:
			at[key] = len(groups)
			groups = append(groups, []T{one})
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
