package node

import (
	"errors"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// A pool that could not be asked for may not exist. It is not one without blocks.
func TestBlocksOfAPoolThatIsNotRead(t *testing.T) {
	s := newTestNode(t)
	if _, err := s.ShowBlocks(t.Context(), "other"); !errors.Is(err, pool.ErrUnknown) {
		t.Errorf("a pool that does not exist: %v", err)
	}
	refused := errors.New("invalid name")
	s.BeforeRequest = func(request string) error {
		if request == "get pool ../lan" {
			return refused
		}
		return nil
	}
	if all, err := s.ShowBlocks(t.Context(), "../lan"); !errors.Is(err, pool.ErrUnavailable) || !errors.Is(err, refused) {
		t.Errorf("a pool of which the API does not tell: %v, %v", all, err)
	}
}
