package metrics

import "testing"

// Hurry makes each question read the stores that have changed.
func Hurry(t *testing.T) {
	kept := poolsKept
	poolsKept = 0
	t.Cleanup(func() { poolsKept = kept })
}
