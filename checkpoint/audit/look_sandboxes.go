package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// ProofTimeout bounds each of the two searches for what keeps namespaces. What is not proven by then is unknown. Tests replace it.
var ProofTimeout = 30 * time.Second

// readSandboxes finds out which sandboxes are there.
func (w *Snapshot) readSandboxes(ctx context.Context, sources Sources) error {
	w.askRuntime(ctx, sources)
	if sources.ByCache && w.Sandboxes.NotAsked != "" {
		cache, err := reclaim.ReadCache(sources.CacheDir)
		if err != nil {
			return err
		}
		w.Sandboxes.Cache, w.Problems = &cache, append(w.Problems, cache.Problems...)
	}
	if err := w.readNamespaces(ctx); err != nil {
		return err
	}
	w.proveGone(ctx, sources)
	w.judgeUnrecorded(ctx, sources)
	return ctx.Err()
}

// proveGone proves that recorded namespaces are gone. On a node with many processes there may be no time for it.
func (w *Snapshot) proveGone(ctx context.Context, sources Sources) {
	bounded, cancel := context.WithTimeout(ctx, ProofTimeout)
	defer cancel()
	w.Sandboxes.Proofs = sandbox.Prove(bounded, sources.AllProcesses, w.missingNamespaces()...)
	late := 0
	for _, proof := range w.Sandboxes.Proofs {
		if proof.TimedOut {
			late++
		}
	}
	if late > 0 {
		w.Problems = append(w.Problems, fmt.Sprintf("it was not found out within %[2]s whether the sandboxes in %[1]d network namespaces are gone: what they have is kept",
			late, ProofTimeout))
	}
}

// askRuntime asks the container runtime for its sandboxes.
func (w *Snapshot) askRuntime(ctx context.Context, sources Sources) {
	w.Sandboxes.Runtime = map[string]sandbox.RuntimeSandbox{}
	if sources.Runtime == nil {
		w.Sandboxes.NotAsked = "there was nobody to ask"
		return
	}
	sandboxes, err := sources.Runtime.Sandboxes(ctx)
	for _, t := range sandboxes {
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

// readNamespaces looks into the network namespaces of this node.
func (w *Snapshot) readNamespaces(ctx context.Context) error {
	found, err := sandbox.List()
	if err != nil {
		return err
	}
	wanted := w.wantedAddresses()
	ofPlace := map[attachment.NamespaceFile][]*Attached{}
	for i := range w.Attached {
		a := &w.Attached[i]
		ofPlace[a.Record.Namespace.File()] = append(ofPlace[a.Record.Namespace.File()], a)
	}
	lives := make([]LiveNamespace, len(found))
	errs := make([]error, len(found))
	inparallel.Do(runtime.GOMAXPROCS(0), len(found), func(i int) {
		if ctx.Err() == nil {
			lives[i], errs[i] = readSandbox(found[i], w.BootID, wanted, ofPlace[found[i].NamespaceFile])
		}
	})
	w.Sandboxes.Live = map[attachment.NamespaceFile]LiveNamespace{}
	for i, live := range lives {
		if errs[i] != nil {
			w.Problems = append(w.Problems, errs[i].Error())
		}
		if live.Namespace.Inode != 0 {
			w.Sandboxes.Live[live.Namespace.File()] = live
		}
	}
	return ctx.Err()
}

// wantedAddresses are those that somebody holds or was given.
func (w *Snapshot) wantedAddresses() map[netip.Addr]bool {
	wanted := map[netip.Addr]bool{}
	for _, l := range w.leases() {
		if l.State == lease.Held {
			wanted[l.Address] = true
		}
	}
	for _, a := range w.Attached {
		for _, address := range a.Assigned {
			wanted[address] = true
		}
	}
	return wanted
}

// readSandbox looks into one sandbox: at its wanted addresses, and for the interfaces of its checkpoints. If none of its paths
// leads to it, it has just gone. A sandbox that cannot be looked into is there all the same.
func readSandbox(s sandbox.Sandbox, bootID string, wanted map[netip.Addr]bool, attached []*Attached) (LiveNamespace, error) {
	namespace, err := kernel.OpenListed(s)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return LiveNamespace{}, nil
	}
	if err != nil {
		listed := attachment.Namespace{Path: s.Paths[0], BootID: bootID, Device: s.Device, Inode: s.Inode}
		return LiveNamespace{Namespace: listed}, fmt.Errorf("the network namespace at %s cannot be looked into: %w", s.Paths[0], err)
	}
	defer namespace.Close()
	return readNamespace(namespace, wanted, attached)
}

func readNamespace(namespace *kernel.Namespace, wanted map[netip.Addr]bool, attached []*Attached) (LiveNamespace, error) {
	live := LiveNamespace{Namespace: namespace.Identity()}
	assigned, err := namespace.AllAddresses()
	if err != nil {
		return live, fmt.Errorf("the addresses in %s: %w", live.Namespace.Path, err)
	}
	relevant := slices.ContainsFunc(assigned, func(a netip.Addr) bool { return wanted[a] })
	if !relevant && len(attached) == 0 {
		return live, nil
	}
	devices, err := namespace.Devices()
	if err != nil {
		return live, fmt.Errorf("the devices in %s: %w", live.Namespace.Path, err)
	}
	matchInterfaces(live.Namespace, devices, attached)
	for _, d := range devices {
		if !relevant {
			break
		}
		addresses, err := namespace.Addresses(d.Index)
		if err != nil {
			return live, fmt.Errorf("the addresses of %s in %s: %w", d.Name, live.Namespace.Path, err)
		}
		for _, a := range addresses {
			if wanted[a] {
				live.Addresses = append(live.Addresses, DeviceAddress{Address: a, Device: d.Name, Index: d.Index, Parent: parentOf(d)})
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

// matchInterfaces notes which device each attachment has. An interface that could not be restored is lost if it is not there.
func matchInterfaces(namespace attachment.Namespace, devices netstate.Devices, attached []*Attached) {
	var records []checkpoint.Record
	for _, a := range attached {
		if a.Record.Namespace.Same(namespace) == nil {
			records = append(records, a.Record)
		}
	}
	index := map[attachment.Key]int{}
	for i, r := range checkpoint.Match(records, devices) {
		index[r.Attachment] = i
	}
	for _, a := range attached {
		if a.Record.Namespace.Same(namespace) != nil {
			continue
		}
		a.Index = index[a.Record.Attachment]
		switch {
		case a.Interface != Unknown:
		case a.Index == 0:
			a.Interface = LostInterface
		default:
			a.Interface = WrongInterface
		}
	}
}

// missingNamespaces returns the recorded namespaces that were not found.
func (w *Snapshot) missingNamespaces() []attachment.Namespace {
	missing := map[attachment.Namespace]bool{}
	note := func(n attachment.Namespace) {
		if live, ok := w.Sandboxes.Live[n.File()]; n.Inode != 0 && (!ok || n.Same(live.Namespace) != nil) {
			missing[n] = true
		}
	}
	for _, a := range w.Attached {
		note(a.Record.Namespace)
	}
	for _, u := range w.Unreadable {
		note(u.Partial.Namespace)
	}
	for _, l := range w.leases() {
		for _, h := range l.Holders {
			if h.Origin != lease.Imported {
				note(h.Namespace)
			}
		}
	}
	return slices.Collect(maps.Keys(missing))
}

// judgeUnrecorded judges the holders whose namespace was not recorded, or only by an import.
func (w *Snapshot) judgeUnrecorded(ctx context.Context, sources Sources) {
	ctx, cancel := context.WithTimeout(ctx, ProofTimeout)
	defer cancel()
	w.Sandboxes.Judged = map[*lease.Holder]sandbox.Judgement{}
	var node *reclaim.Node
	for n, l := range w.leases() {
		for i, h := range l.Holders {
			if h.Namespace.Inode != 0 && h.Origin != lease.Imported {
				continue
			}
			if node == nil {
				look := reclaim.Sources{CacheDir: sources.CacheDir, AllProcesses: sources.AllProcesses}
				err := AddCheckpoints(&look, sources.Store)
				if err == nil {
					node, err = reclaim.Look(ctx, look)
				}
				if err != nil {
					w.Problems = append(w.Problems, "the holders whose network namespace was not recorded could not be looked for: "+sandbox.SearchError(err))
					return
				}
			}
			w.Sandboxes.Judged[&l.Holders[i]] = node.Judge(l.Address, h, w.timeOf(n, h), reclaim.OtherHolders(*l, h)...)
		}
	}
	if node != nil {
		w.Problems = append(w.Problems, slices.DeleteFunc(node.Problems(), func(p string) bool { return slices.Contains(w.Problems, p) })...)
	}
}

// timeOf returns the present time by the clock of the holder's times. An import knows only the time of day.
func (w *Snapshot) timeOf(n *Network, h lease.Holder) time.Time {
	if h.Origin == lease.Imported {
		return w.Time
	}
	return n.StoreTime
}

// AddCheckpoints adds what the checkpoints know of the sandboxes of holders. A pod still owns the address that it lost with a NIC. A checkpoint
// that cannot be read hides the namespace of its container.
func AddCheckpoints(s *reclaim.Sources, store *checkpoint.Store) error {
	records, unreadable, err := store.List()
	s.Namespaces, s.Unreadable = map[string]attachment.Namespace{}, map[string]string{}
	for _, r := range records {
		s.Namespaces[r.Attachment.ContainerID] = r.Namespace
	}
	for _, u := range unreadable {
		s.Unreadable[u.ContainerID] = fmt.Sprintf("a checkpoint of %s cannot be read: %v", u.ContainerID, u.Err)
	}
	return err
}
