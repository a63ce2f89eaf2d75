package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// DefaultProofWait bounds a search for what keeps namespaces.
const DefaultProofWait = 30 * time.Second

// lookAtSandboxes finds out which sandboxes are there.
func (w *World) lookAtSandboxes(ctx context.Context, from Sources) error {
	w.askRuntime(ctx, from)
	if err := w.lookInside(ctx); err != nil {
		return err
	}
	w.prove(ctx, from)
	w.judgeUnrecorded(ctx, from)
	return ctx.Err()
}

// prove proves that recorded namespaces are gone. On a node with many processes there may be no time for it.
func (w *World) prove(ctx context.Context, from Sources) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(from.ProofWait, DefaultProofWait))
	defer cancel()
	w.Sandboxes.Proofs = sandbox.Prove(bounded, from.AllProcesses, w.missing()...)
	late := 0
	for _, proof := range w.Sandboxes.Proofs {
		if proof.Late {
			late++
		}
	}
	if late > 0 {
		w.Problems = append(w.Problems, fmt.Sprintf("it was not found out within %[2]s whether the sandboxes in %[1]d network namespaces are gone: what they have is kept",
			late, cmp.Or(from.ProofWait, DefaultProofWait)))
	}
}

// askRuntime asks the container runtime for its sandboxes.
func (w *World) askRuntime(ctx context.Context, from Sources) {
	w.Sandboxes.Runtime = map[string]sandbox.OfRuntime{}
	if from.Runtime == nil {
		w.Sandboxes.NotAsked = "there was nobody to ask"
		return
	}
	told, err := from.Runtime.Sandboxes(ctx)
	for _, t := range told {
		w.Sandboxes.Runtime[t.ContainerID] = t
	}
	switch {
	case errors.Is(err, sandbox.ErrNoRuntime): // Such a node may have pods of cnitool only.
		w.Sandboxes.NotAsked = err.Error()
		w.Notes = append(w.Notes, "no container runtime was asked, so no sandbox is proven gone: "+err.Error())
	case err != nil:
		w.Sandboxes.NotAsked = err.Error()
		w.Problems = append(w.Problems, "the container runtime did not tell of all its sandboxes: "+err.Error())
	}
}

// lookInside looks into the network namespaces of this node.
func (w *World) lookInside(ctx context.Context) error {
	found, err := sandbox.List()
	if err != nil {
		return err
	}
	wanted := w.wantedAddresses()
	ofPlace := map[Place][]*Attached{}
	for i := range w.Attached {
		a := &w.Attached[i]
		ofPlace[PlaceOf(a.Record.Namespace)] = append(ofPlace[PlaceOf(a.Record.Namespace)], a)
	}
	lives := make([]Live, len(found))
	errs := make([]error, len(found))
	inparallel.Do(runtime.GOMAXPROCS(0), len(found), func(i int) {
		if ctx.Err() == nil {
			lives[i], errs[i] = into(found[i], w.BootID, wanted, ofPlace[Place{found[i].Device, found[i].Inode}])
		}
	})
	w.Sandboxes.Live = map[Place]Live{}
	for i, live := range lives {
		if errs[i] != nil {
			w.Problems = append(w.Problems, errs[i].Error())
		}
		if live.Namespace.Inode != 0 {
			w.Sandboxes.Live[PlaceOf(live.Namespace)] = live
		}
	}
	return ctx.Err()
}

// wantedAddresses are those that somebody holds or was given.
func (w *World) wantedAddresses() map[netip.Addr]bool {
	wanted := map[netip.Addr]bool{}
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			if l.State == lease.Held {
				wanted[l.Address] = true
			}
		}
	}
	for _, a := range w.Attached {
		for _, address := range a.Given {
			wanted[address] = true
		}
	}
	return wanted
}

// into looks into one sandbox: at its wanted addresses, and for the interfaces of its checkpoints. If none of its paths
// leads to it, it has just gone. A sandbox that cannot be looked into is there all the same.
func into(s sandbox.Sandbox, bootID string, wanted map[netip.Addr]bool, of []*Attached) (Live, error) {
	for _, path := range s.Paths {
		namespace, err := kernel.Open(path)
		if errors.Is(err, kernel.ErrNoNamespace) {
			continue
		}
		if err != nil {
			there := attachment.Namespace{Path: path, BootID: bootID, Device: s.Device, Inode: s.Inode}
			return Live{Namespace: there}, fmt.Errorf("the network namespace at %s cannot be looked into: %w", path, err)
		}
		if id := namespace.Identity(); id.Device != s.Device || id.Inode != s.Inode {
			namespace.Close()
			continue
		}
		live, err := inside(namespace, wanted, of)
		namespace.Close()
		return live, err
	}
	return Live{}, nil
}

func inside(namespace *kernel.Namespace, wanted map[netip.Addr]bool, of []*Attached) (Live, error) {
	live := Live{Namespace: namespace.Identity()}
	all, err := namespace.EveryAddress()
	if err != nil {
		return live, fmt.Errorf("the addresses in %s: %w", live.Namespace.Path, err)
	}
	has := slices.ContainsFunc(all, func(a netip.Addr) bool { return wanted[a] })
	if !has && len(of) == 0 {
		return live, nil
	}
	devices, err := namespace.Devices()
	if err != nil {
		return live, fmt.Errorf("the devices in %s: %w", live.Namespace.Path, err)
	}
	find(live.Namespace, devices, of)
	for _, d := range devices {
		if !has {
			break
		}
		addresses, err := namespace.Addresses(d.Index)
		if err != nil {
			return live, fmt.Errorf("the addresses of %s in %s: %w", d.Name, live.Namespace.Path, err)
		}
		for _, a := range addresses {
			if wanted[a] {
				live.Addresses = append(live.Addresses, At{Address: a, Device: d.Name, Index: d.Index, Parent: parentOf(d)})
			}
		}
	}
	return live, nil
}

// parentOf is the index of the host's device that a macvlan or ipvlan is on. VLANs on one device are not in one network.
func parentOf(d netstate.LiveDevice) int {
	if d.Kind == netstate.KindMacvlan || d.Kind == netstate.KindIPvlan {
		return d.ParentIndex
	}
	return 0
}

// find notes which device each attachment has. An interface that could not be restored is lost if it is not there.
func find(at attachment.Namespace, devices netstate.Devices, of []*Attached) {
	var records []checkpoint.Record
	for _, a := range of {
		if a.Record.Namespace.Same(at) == nil {
			records = append(records, a.Record)
		}
	}
	index := map[attachment.Key]int{}
	for i, r := range checkpoint.Match(records, devices) {
		index[r.Attachment] = i
	}
	for _, a := range of {
		if a.Record.Namespace.Same(at) != nil {
			continue
		}
		a.Index = index[a.Record.Attachment]
		switch {
		case a.Interface != NotSeen:
		case a.Index == 0:
			a.Interface = Lost
		default:
			a.Interface = Wrong
		}
	}
}

// missing returns the recorded namespaces that were not found.
func (w *World) missing() []attachment.Namespace {
	seen := map[attachment.Namespace]bool{}
	var all []attachment.Namespace
	note := func(n attachment.Namespace) {
		if live, there := w.Sandboxes.Live[PlaceOf(n)]; seen[n] || n.Inode == 0 || there && n.Same(live.Namespace) == nil {
			return
		}
		seen[n] = true
		all = append(all, n)
	}
	for _, a := range w.Attached {
		note(a.Record.Namespace)
	}
	for _, u := range w.Unreadable {
		note(u.Left.Namespace)
	}
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			for _, h := range l.Holders {
				if h.Origin != lease.Imported {
					note(h.Namespace)
				}
			}
		}
	}
	return all
}

// judgeUnrecorded judges the holders whose namespace was not recorded, or only by an import.
func (w *World) judgeUnrecorded(ctx context.Context, from Sources) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(from.ProofWait, DefaultProofWait))
	defer cancel()
	w.Sandboxes.Judged = map[Holding]reclaim.Judgement{}
	var node *reclaim.Node
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			for _, h := range l.Holders {
				if h.Namespace.Inode != 0 && h.Origin != lease.Imported {
					continue
				}
				if node == nil {
					var err error
					if node, err = reclaim.Look(ctx, w.sourcesOf(from)); err != nil {
						w.Problems = append(w.Problems, "the holders whose network namespace was not recorded could not be looked for: "+sandbox.Late(err))
						return
					}
				}
				now := n.Now
				if h.Origin == lease.Imported { // An import knows only the time of day.
					now = w.Now
				}
				w.Sandboxes.Judged[Holding{n.Dir, n.Name, l.Address, h.ContainerID, h.IfName}] = node.Judge(l.Address, h, now, reclaim.Others(l, h)...)
			}
		}
	}
	if node != nil {
		w.Problems = append(w.Problems, node.Problems()...)
	}
}

func (w *World) sourcesOf(from Sources) reclaim.Sources {
	s := reclaim.Sources{
		CacheDir: from.CacheDir, AllProcesses: from.AllProcesses, Namespaces: map[string]attachment.Namespace{}, Unreadable: map[string]string{},
	}
	for _, a := range w.Attached {
		s.Namespaces[a.Record.Attachment.ContainerID] = a.Record.Namespace
	}
	for _, u := range w.Unreadable {
		s.Unreadable[u.ContainerID] = fmt.Sprintf("a checkpoint of %s cannot be read: %v", u.ContainerID, u.Err)
	}
	return s
}
