package lease

import (
	"context"
	"errors"
	"fmt"
)

// ErrCluster says that another cluster's API has judged the owners.
var ErrCluster = errors.New("the Kubernetes API is another cluster's")

// OfCluster checks that the owners of the network's addresses are of the cluster whose namespace kube-system has the UID. A store that
// knows none gets this one if knows says that its API knows an owner of the network. ErrCluster: the store has another one, or the
// UID is empty and the store has one. ErrNone: there is no store.
func (s *Store) OfCluster(ctx context.Context, uid string, knows bool) error {
	var was string
	if err := s.view(ctx, func(l *leases) error { was = string(l.meta.Get([]byte(keyCluster))); return nil }); err != nil {
		return err
	}
	switch {
	case was == uid, was == "" && !knows:
		return nil
	case was == "":
		return s.change(ctx, func(l *leases) error { return l.meta.Put([]byte(keyCluster), []byte(uid)) })
	case uid == "":
		return fmt.Errorf("network %s: %w, or does not say which it is: allow relink-agent to get the namespace kube-system", s.network, ErrCluster)
	}
	return fmt.Errorf("network %s: %w: the UID of its namespace kube-system is %s, and was %s, so none of its owners counts as gone. Correct --kubeconfig; "+
		"if this node has joined another cluster for good, run relink ipam reset-machine --network %s", s.network, ErrCluster, uid, was, s.network)
}
