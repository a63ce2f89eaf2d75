package checkpoint

import "testing"

// TestLockExcludesManyWhileTheDirectoryComesAndGoes has each holder come upon
// what the one before it left: often no directory at all.
func TestLockExcludesManyWhileTheDirectoryComesAndGoes(t *testing.T) {
	excludeMany(t, newStore(t))
}
