// Package crash kills relink's programs at every step, and runs them all at once. Then it checks that nothing was lost. A program can
// pass the same step many times, once for each interface. make test kills it at two of these, make test-long at all.
package crash
