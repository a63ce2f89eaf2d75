package hostends

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netfilter"
	"github.com/relink-cni/relink/pkg/wait"
)

// reconcileFilter keeps the rules of iptables right until ctx is done. Changes of them cause no event, and a look takes several
// processes: so the Reconciler's other looks do not wait for it.
func (k *Reconciler) reconcileFilter(ctx context.Context) {
	reported := false
	for {
		next := interval
		switch err := k.assertFilter(ctx); {
		case ctx.Err() != nil:
			return
		case errors.Is(err, netfilter.ErrNotInstalled) && reported:
			// As in the image of the DaemonSet. The plugins and relink restore have iptables.
		case err != nil:
			k.OnError(err)
			if reported = errors.Is(err, netfilter.ErrNotInstalled); !reported {
				next = retryDelay
			}
		}
		if !wait.Sleep(ctx, maxPause) {
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
func (k *Reconciler) assertFilter(ctx context.Context) error {
	node, err := hostaccess.ReadNode(k.Host)
	if err != nil {
		return err
	}
	differences, err := k.snapshot().AssertFilter(ctx, node)
	if err == nil && len(differences) > 0 {
		k.OnDone(differences)
	}
	return err
}
