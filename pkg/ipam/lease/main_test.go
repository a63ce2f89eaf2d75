package lease

import (
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// TestMain gives the tests mounts of their own, because some of them fill a small disk.
func TestMain(m *testing.M) { fresh.Main(m) }
