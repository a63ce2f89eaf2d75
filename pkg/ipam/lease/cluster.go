package lease

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrCluster says that another cluster's API has judged the owners.
	ErrCluster = errors.New("the Kubernetes API is another cluster's")
	// ErrNoCluster says that the store does not know yet which cluster its owners are of.
	ErrNoCluster = errors.New("it is not known whether the Kubernetes API is this node's")
)

// CheckCluster checks that the owners of the network's addresses are of the cluster whose namespace kube-system has the UID.
// ErrCluster: they are of another one. ErrNoCluster: the store knows none yet. ErrNotLeased: there is no store.
func (s *Store) CheckCluster(ctx context.Context, uid string) error {
	return s.view(ctx, func(l *leaseTx) error { return l.checkCluster(uid) })
}

func (l *leaseTx) checkCluster(uid string) error {
	network := l.store.network
	switch recorded := l.text(keyCluster); recorded {
	case "":
		return fmt.Errorf("network %s: %w: it knows no pod that runs here, and no owner for whom an address waits, so none of the owners counts as gone. "+
			"Correct --kubeconfig; if it is right, start a pod on this node", network, ErrNoCluster)
	case uid:
		return nil
	default:
		return fmt.Errorf("network %s: %w: the UID of its namespace kube-system is %s, and was %s, so none of its owners counts as gone. Correct --kubeconfig; "+
			"if this node has joined another cluster for good, run relink ipam reset-machine %s", network, ErrCluster, uid, recorded, l.store.flags())
	}
}

// SetCluster notes that the owners of the network's addresses are of the cluster whose namespace kube-system has the UID.
// ErrCluster: they are of another one. ErrNotLeased: there is no store.
func (s *Store) SetCluster(ctx context.Context, uid string) error {
	return s.change(ctx, func(l *leaseTx) error {
		switch err := l.checkCluster(uid); {
		case errors.Is(err, ErrNoCluster):
			return l.putText(keyCluster, uid)
		case err != nil:
			return err
		}
		return errUnchanged
	})
}
