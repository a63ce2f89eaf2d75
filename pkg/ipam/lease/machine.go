package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// ErrForeign says that the store is another machine's, or another node's: its disk was copied, or the machine got another ID.
var ErrForeign = errors.New("it is the store of another machine")

// foreignError says why the store is not this machine's, nil if it is. An ID that nobody knows proves nothing: in the agent's
// container there is no machine ID. IDs of machines can be the same on clones; then the agent tells by the node's name.
func (l *leaseTx) foreignError() error {
	path, flags := l.store.path, l.store.flags()
	switch recorded, current := l.text(keyMachine), l.store.machine(); {
	case recorded != "" && current != "" && recorded != current:
		return fmt.Errorf("store %s: %w: that one's machine ID is %s (node %s), and this one's is %s. If this is a copy of that machine's disk, run rm %s. "+
			"If it is the same node and only its machine ID has changed, run relink ipam reset-machine %s",
			path, ErrForeign, recorded, cmp.Or(l.text(keyNode), "unknown"), current, path, flags)
	case l.isNodeRecreated():
		return fmt.Errorf("store %s: %w: the object of node %s was made anew in Kubernetes, and its UID is another one than %s. If this machine was "+
			"made from an image, run rm %s. If it is the machine that has written the store, run relink ipam reset-machine %s",
			path, ErrForeign, l.text(keyNode), l.text(keyNodeUID), path, flags)
	case l.text(keyElsewhere) != "":
		return fmt.Errorf("store %s: %w: it is node %s's, and this is node %s. If this is a copy of that node's disk, or the node got another name, run rm %s",
			path, ErrForeign, l.text(keyNode), l.text(keyElsewhere), path)
	}
	return nil
}

// flags name the store for the verbs of relink ipam. Without its directory they would take another one of the same network.
func (s *Store) flags() string {
	if dir := filepath.Dir(s.path); dir != DefaultDir {
		return fmt.Sprintf("--network %s --data-dir %s", s.network, dir)
	}
	return "--network " + s.network
}

// checkMachine refuses a store of another machine. A store that names none becomes this machine's with the first change.
func (l *leaseTx) checkMachine() error {
	if l.store.allowForeign {
		return nil
	}
	if err := l.foreignError(); err != nil {
		return err
	}
	if l.meta.Writable() && l.text(keyMachine) == "" {
		if id := l.store.machine(); id != "" {
			return l.putText(keyMachine, id)
		}
	}
	return nil
}

// AllowForeign returns the store for what works on a store of another machine, too: looks that give nothing, and what frees nobody else's address.
func (s *Store) AllowForeign() *Store {
	store := *s
	store.allowForeign = true
	return &store
}

// SetNode notes the name of the node by the Kubernetes API, and the UID of its object, which may be empty. A store that is another
// node's is refused from then on, by ADDs, too: ErrForeign. So is one of a node whose object was made anew, unless this boot has
// given addresses under the old one: the machine can come from an image then. ErrNotLeased: there is no store.
func (s *Store) SetNode(ctx context.Context, node, uid string) error {
	var foreign error
	err := s.AllowForeign().change(ctx, func(l *leaseTx) error {
		changed := false
		put := func(key, value string) error {
			if l.text(key) == value {
				return nil
			}
			changed = true
			return l.putText(key, value)
		}
		errs := []error{put(keyElsewhere, l.otherNode(node, uid))}
		if foreign = l.foreignError(); foreign == nil {
			errs = append(errs, put(keyNode, node))
			if uid != "" {
				errs = append(errs, put(keyNodeUID, uid))
			}
		}
		if err := errors.Join(errs...); err != nil || changed {
			return err
		}
		return errUnchanged
	})
	return cmp.Or(err, foreign)
}

// otherNode returns the node's name if the store is of a node with another name, or with the same name and another UID.
func (l *leaseTx) otherNode(node, uid string) string {
	recorded, recordedUID := l.text(keyNode), l.text(keyNodeUID)
	sameNode := recorded == node && (uid == "" || recordedUID == "" || uid == recordedUID || l.isConfirmed())
	if recorded == "" || sameNode {
		return ""
	}
	return node
}

// ResetMachine makes the store this machine's: an operator says that the node is the same and got another machine ID. It also
// forgets the cluster that the owners are of, and the UID of the node: the next ones count. It returns an error for a store of a node with another name.
func (s *Store) ResetMachine(ctx context.Context) (changed bool, err error) {
	err = s.AllowForeign().change(ctx, func(l *leaseTx) error {
		id, anew := s.machine(), l.isNodeRecreated()
		if l.text(keyMachine) == id && l.text(keyCluster) == "" && !anew {
			return cmp.Or(l.foreignError(), errUnchanged)
		}
		changed = true
		errs := []error{l.putText(keyMachine, id), l.meta.Delete([]byte(keyCluster))}
		if anew {
			errs = append(errs, l.meta.Delete([]byte(keyElsewhere)), l.meta.Delete([]byte(keyNodeUID)))
		}
		return cmp.Or(errors.Join(errs...), l.foreignError())
	})
	return changed && err == nil, err
}

// isNodeRecreated says that the agent has found the store on a node of its name whose object has another UID.
func (l *leaseTx) isNodeRecreated() bool {
	node := l.text(keyElsewhere)
	return node != "" && node == l.text(keyNode)
}

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
