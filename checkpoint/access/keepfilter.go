package access

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/hostaccess"
)

// keepFilter keeps the rules of iptables right until ctx is done. Changes of them cause no event, and a look takes several
// processes: so the Keeper's other looks do not wait for it.
func (k *Keeper) keepFilter(ctx context.Context) {
	told := false
	for {
		next := round
		switch err := k.assertFilter(ctx); {
		case ctx.Err() != nil:
			return
		case errors.Is(err, hostaccess.ErrNoIPTables) && told:
			// As in the image of the DaemonSet. The plugins and relink restore have iptables.
		case err != nil:
			k.OnError(err)
			if told = errors.Is(err, hostaccess.ErrNoIPTables); !told {
				next = retry
			}
		}
		if !sleep(ctx, longestRest) {
			return // Pods often come together.
		}
		select {
		case <-ctx.Done():
			return
		case <-k.filter:
		case <-time.After(next):
		}
	}
}

// assertFilter makes the rules right.
func (k *Keeper) assertFilter(ctx context.Context) error {
	node, err := hostaccess.ReadNode(k.Host)
	if err != nil {
		return err
	}
	records, complete := k.known()
	done, err := Host{Store: k.Store, Host: k.Host, Records: records, All: complete}.AssertFilter(ctx, node)
	if err == nil && len(done) > 0 {
		k.OnDone(done)
	}
	return err
}
