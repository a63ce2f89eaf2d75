package metrics

import "testing"

// DisableCache makes each question read the stores that have changed.
func DisableCache(t *testing.T) {
	kept := poolsMaxAge
	poolsMaxAge = 0
	t.Cleanup(func() { poolsMaxAge = kept })
}
