// Package binaries builds relink's programs, and those that the tests compare with or attach by.
package binaries
