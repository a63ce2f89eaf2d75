// Package inparallel calls a function for each of many things, with a few goroutines.
package inparallel
