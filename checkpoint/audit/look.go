package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

// Sources are what a look reads besides the kernel.
type Sources struct {
	Store *checkpoint.Store
	// Leases are the stores of all networks in LeaseDirs. OpenLeases fills in both. Problems say what it could not read.
	Leases    []*lease.Store
	LeaseDirs []string
	Problems  []string
	// ConfDirs are where OpenLeases reads configurations, DefaultConfDirs for nil.
	ConfDirs []string
	// Runtime and Judge are nil if there is nobody to ask. Then Nobody says why.
	Runtime sandbox.Runtime
	Judge   owner.Judge
	Nobody  string
	// Asker tells whose the pods are that relink has attached to nothing. It is nil if there is nobody to ask.
	Asker Asker
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// AllProcesses says that the caller sees all processes of the node (sandbox.SeesAllProcesses).
	AllProcesses bool
	// First are owners that are asked for in any case. Of the others a look asks for MostOwners at most, DefaultMostOwners
	// for 0. Later looks ask for the rest.
	First      []attachment.Owner
	MostOwners int
	// ProofWait bounds each of the two searches for what keeps namespaces, DefaultProofWait for 0. What is not proven by then
	// is unknown.
	ProofWait time.Duration
}

// Asker knows the owner of a pod: an owner.Asker.
type Asker interface {
	Ask(ctx context.Context, q owner.Question) (owner.Answer, error)
}

// DefaultMostOwners bounds what one look costs the Kubernetes API.
const DefaultMostOwners = 1000

// Run looks at the node and judges what it sees. A second look follows if a pod seems to have an address without a
// lease, or two pods one address: an ADD or a DEL can have come between two parts of the first look. The error says that
// the checkpoints or the processes of the node cannot be read, or is that of ctx.
func Run(ctx context.Context, from Sources) (Report, error) {
	w, err := Look(ctx, from)
	if err != nil {
		return Report{}, err
	}
	first := Judge(w)
	if !first.suspects() {
		return first, nil
	}
	if w, err = Look(ctx, from); err != nil {
		return Report{}, err
	}
	return Judge(w).confirming(first), nil
}

// isSuspect says that an ADD or a DEL that is under way can look like this.
func (f Finding) isSuspect() bool {
	return f.Severity == Error && (f.Kind == DuplicateAddress || f.Kind == SandboxWithoutLease)
}

func (r Report) suspects() bool {
	for _, f := range r.Findings {
		if f.isSuspect() {
			return true
		}
	}
	return false
}

// confirming returns the report without the suspects that were not in the report before.
func (r Report) confirming(before Report) Report {
	type suspect struct {
		kind    Kind
		of      attachment.Key
		address netip.Addr
	}
	seen := map[suspect]bool{}
	for _, f := range before.Findings {
		seen[suspect{f.Kind, f.Attachment, f.Address}] = true
	}
	var kept []Finding
	for _, f := range r.Findings {
		switch {
		case !f.isSuspect() || seen[suspect{f.Kind, f.Attachment, f.Address}]:
			kept = append(kept, f)
		case f.Kind == SandboxWithoutLease:
			f.Kind, f.Severity, f.Evidence = Fine, Information, []string{}
			kept = append(kept, f)
		}
	}
	r.Findings, r.Errors = kept, 0
	r.finish()
	return r
}

// Look gathers the world. What cannot be looked at is no error, but in Problems. Checkpoints are read first, then
// leases, then what is there: so nothing that is newer than a look is judged by it.
func Look(ctx context.Context, from Sources) (World, error) {
	bootID, err := boot.ID()
	if err != nil {
		return World{}, err
	}
	w := World{BootID: bootID, Now: time.Now(), LeaseDirs: from.leaseDirs(), Problems: slices.Clone(from.Problems)}
	records, unreadable, err := from.Store.List()
	if err != nil {
		return World{}, err
	}
	w.noteUnreadable(records, unreadable)
	w.readLeases(ctx, from.Leases)
	w.compare(ctx, from, records)
	if err := w.lookAtSandboxes(ctx, from); err != nil {
		return World{}, err
	}
	w.askForOwners(ctx, from)
	w.askForUnattached(ctx, from)
	if from.Nobody != "" {
		w.Notes = append(w.Notes, from.Nobody)
	}
	return w, ctx.Err()
}

// leaseDirs returns the directories that are read: some have no store yet.
func (s Sources) leaseDirs() []string {
	dirs := slices.Clone(s.LeaseDirs)
	for _, store := range s.Leases {
		if dir := filepath.Dir(store.Path()); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// noteUnreadable notes the checkpoints that cannot be read. The others can tell the pods of their sandboxes.
func (w *World) noteUnreadable(records []checkpoint.Record, unreadable []checkpoint.Unreadable) {
	things := selection.WithPods(checkpoint.Things(records, unreadable))[len(records):]
	for i, u := range unreadable {
		w.Unreadable = append(w.Unreadable, Unreadable{u, things[i].Pod})
	}
}

// readLeases reads the leases of all networks. A store that cannot be read does not stop the others.
func (w *World) readLeases(ctx context.Context, stores []*lease.Store) {
	for _, s := range stores {
		n := Network{Name: s.Network(), Dir: filepath.Dir(s.Path()), Now: time.Now()}
		all, err := s.List(ctx)
		var ahead time.Duration
		if err == nil {
			ahead, err = s.ClockAhead(ctx)
		}
		if err == nil {
			n.Pools, err = s.HasPools(ctx)
		}
		if errors.Is(err, lease.ErrNone) {
			continue
		}
		if err != nil {
			n.Problem = err.Error()
		} else {
			n.Leases, n.Now = all, n.Now.Add(ahead)
		}
		w.Networks = append(w.Networks, n)
	}
}

// compare compares the interfaces with their checkpoints, as relink check does.
func (w *World) compare(ctx context.Context, from Sources, records []checkpoint.Record) {
	owners := w.ownersOfHolders()
	report, err := restore.Run(ctx, restore.Options{Store: from.Store, DryRun: true, KeepLive: true})
	if err != nil {
		w.Problems = append(w.Problems, "the interfaces cannot be compared with their checkpoints: "+err.Error())
	}
	outcomes := map[attachment.Key]restore.Outcome{}
	for _, o := range report.Attachments {
		outcomes[o.Attachment] = o
	}
	for _, r := range records {
		o, there := outcomes[r.Attachment]
		if !there && err == nil {
			continue // It was detached meanwhile.
		}
		a := Attached{Record: r, Owner: cmp.Or(r.Owner, owners[part{r.Attachment.ContainerID, r.Attachment.IfName}])}
		a.Given, a.LeaseDir = given(r.CNI, w.LeaseDirs)
		switch {
		case !there:
			a.Interface, a.Why = NotSeen, err.Error()
		default:
			a.Interface, a.Why = interfaceOf(o)
		}
		w.Attached = append(w.Attached, a)
	}
}

// interfaceOf says how the interface is. Whether an interface is there that could not be restored is seen in its sandbox.
func interfaceOf(o restore.Outcome) (Interface, string) {
	switch {
	case o.IsAsRecorded(), o.State == restore.SandboxGone:
		return AsRecorded, ""
	case o.State == restore.ToRestore:
		return Lost, o.Why()
	case o.State == restore.ToRepair, o.Live != nil:
		return Wrong, o.Why()
	}
	return NotSeen, o.Why()
}

// ownersOfHolders returns the owners by their attachments.
func (w *World) ownersOfHolders() map[part]attachment.Owner {
	all := map[part]attachment.Owner{}
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			for _, h := range l.Holders {
				all[part{h.ContainerID, h.IfName}] = l.Owner
			}
		}
	}
	return all
}

// given returns the addresses that relink-ipam gave, by what the runtime gave and got. dir is the directory of the
// leases if it is none of those that are read.
func given(cni checkpoint.CNI, read []string) (all []netip.Addr, dir string) {
	var config netConf
	type ip struct {
		Address netip.Prefix `json:"address"`
		IP      netip.Prefix `json:"ip"`
	}
	var result struct {
		IPs []ip `json:"ips"`
		// Results before 0.3.0 of the CNI specification have these.
		IP4 ip `json:"ip4"`
		IP6 ip `json:"ip6"`
	}
	if json.Unmarshal(cni.Config, &config) != nil || config.IPAM.Type != "relink-ipam" || json.Unmarshal(cni.Result, &result) != nil {
		return nil, ""
	}
	for _, one := range append(result.IPs, result.IP4, result.IP6) {
		if p := cmp.Or(one.Address, one.IP); p.IsValid() {
			all = append(all, p.Addr())
		}
	}
	if dir, err := lease.Dir(config.IPAM.DataDir); err == nil && !slices.Contains(read, resolved(dir)) {
		return all, dir
	}
	return all, ""
}

// String is the number of findings of each kind, for people.
func (r Report) String() string {
	s := fmt.Sprintf("%d %s", r.Counts[Fine], Fine)
	for _, k := range Kinds {
		if n := r.Counts[k]; n > 0 && k != Fine {
			s += fmt.Sprintf(", %d %s", n, k)
		}
	}
	return s
}
