package hostends

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netstate"
)

// An ADD that is tried again has the same error: services come first.
func TestTheFirstLostRouteIsNamed(t *testing.T) {
	own := netip.MustParsePrefix("10.9.0.0/24")
	target := Target{Interface: netstate.Interface{Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("10.9.0.2/24")}}}}
	for range 64 {
		err := target.checkLostRoutes(hostaccess.Options{Services: []netip.Prefix{own}, Extra: []netip.Prefix{own}})
		var lost *LostRouteError
		if !errors.As(err, &lost) || lost.Key != "services" {
			t.Fatal(err)
		}
	}
	if err := target.checkLostRoutes(hostaccess.Options{}); err != nil {
		t.Error(err)
	}
}
