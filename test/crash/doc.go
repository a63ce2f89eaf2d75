// Package crash kills relink's programs at every step, and runs them all at once. Then it checks that nothing was lost.
package crash
