package lease

import (
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// TestMain gives the tests mounts of their own: some fill a small disk.
func TestMain(m *testing.M) { fresh.Main(m) }
