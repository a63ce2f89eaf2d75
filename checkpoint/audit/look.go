package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	// Runtime and Judge are nil if there is nobody to ask. Then UnaskedReason says why.
	Runtime       sandbox.Runtime
	Judge         owner.Judge
	UnaskedReason string
	// Asker tells whose the pods are that relink has attached to nothing. It is nil if there is nobody to ask.
	Asker Asker
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// ByCache says that the CNI caches show whether a DEL is due, if the runtime does not tell of all its sandboxes.
	ByCache bool
	// AllProcesses says that the caller sees all processes of the node (sandbox.SeesAllProcesses).
	AllProcesses bool
	// FirstOwners are owners that are asked for in any case. Of the others a look asks for MaxOwners at most. Later looks ask for the rest.
	FirstOwners []attachment.Owner
}

// Asker knows the owner of a pod: an owner.Asker.
type Asker interface {
	Ask(ctx context.Context, q owner.Question) (owner.Answer, error)
}

// MaxOwners bounds what one look costs the Kubernetes API. Tests replace it.
var MaxOwners = 1000

// Run looks at the node and judges what it sees. A second look follows if a pod seems to have an address without a
// lease, or two pods one address: an ADD or a DEL can have come between two parts of the first look. The error says that
// the checkpoints or the processes of the node cannot be read, or is that of ctx.
func Run(ctx context.Context, sources Sources) (NodeReport, error) {
	w, err := Gather(ctx, sources)
	if err != nil {
		return NodeReport{}, err
	}
	first := Judge(w)
	if !slices.ContainsFunc(first.Findings, Finding.isSuspect) {
		return first, nil
	}
	if w, err = Gather(ctx, sources); err != nil {
		return NodeReport{}, err
	}
	return Judge(w).confirmedBy(first), nil
}

// isSuspect says that an ADD or a DEL that is under way can look like this.
func (f Finding) isSuspect() bool {
	return f.Severity == Error && (f.Kind == DuplicateAddress || f.Kind == SandboxWithoutLease)
}

// confirmedBy returns the report without the suspects that were not in the report before.
func (r NodeReport) confirmedBy(before NodeReport) NodeReport {
	var kept []Finding
	for _, f := range r.Findings {
		confirmed := !f.isSuspect() || slices.ContainsFunc(before.Findings, func(earlier Finding) bool {
			return earlier.Kind == f.Kind && earlier.Attachment == f.Attachment && earlier.Address == f.Address
		})
		if !confirmed && f.Kind == SandboxWithoutLease {
			f.Kind, f.Severity, f.Evidence, confirmed = Fine, Information, []string{}, true
		}
		if confirmed {
			kept = append(kept, f)
		}
	}
	r.Findings, r.Errors = kept, 0
	r.sortAndCount()
	return r
}

// Gather looks at the node. What cannot be looked at is no error, but in Problems. Checkpoints are read first, then
// leases, then what is there: so nothing that is newer than a look is judged by it.
func Gather(ctx context.Context, sources Sources) (Snapshot, error) {
	bootID, err := boot.ID()
	if err != nil {
		return Snapshot{}, err
	}
	w := Snapshot{BootID: bootID, Time: time.Now(), LeaseDirs: sources.leaseDirs(), Problems: slices.Clone(sources.Problems)}
	records, unreadable, err := sources.Store.List()
	if err != nil {
		return Snapshot{}, err
	}
	w.noteUnreadable(records, unreadable)
	w.readLeases(ctx, sources.Leases)
	w.compareInterfaces(ctx, sources, records)
	if err := w.readSandboxes(ctx, sources); err != nil {
		return Snapshot{}, err
	}
	w.judgeOwners(ctx, sources)
	w.findUnattached(ctx, sources)
	if sources.UnaskedReason != "" {
		w.Notes = append(w.Notes, sources.UnaskedReason)
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
func (w *Snapshot) noteUnreadable(records []checkpoint.Record, unreadable []checkpoint.Unreadable) {
	candidates := selection.WithPods(checkpoint.Candidates(records, unreadable))[len(records):]
	for i, u := range unreadable {
		w.Unreadable = append(w.Unreadable, Unreadable{u, candidates[i].Pod})
	}
}

// readLeases reads the leases of all networks. A store that cannot be read does not stop the others.
func (w *Snapshot) readLeases(ctx context.Context, stores []*lease.Store) {
	for _, s := range stores {
		n := Network{Name: s.Network(), Dir: filepath.Dir(s.Path()), StoreTime: time.Now()}
		leases, err := s.List(ctx)
		var ahead time.Duration
		if err == nil {
			ahead, err = s.ClockAhead(ctx)
		}
		if err == nil {
			n.Pools, err = s.HasPools(ctx)
		}
		if errors.Is(err, lease.ErrNotLeased) {
			continue
		}
		if err != nil {
			n.Problem = err.Error()
		} else {
			n.Leases, n.StoreTime = leases, n.StoreTime.Add(ahead)
		}
		w.Networks = append(w.Networks, n)
	}
}

// compareInterfaces compares the interfaces with their checkpoints, as relink check does.
func (w *Snapshot) compareInterfaces(ctx context.Context, sources Sources, records []checkpoint.Record) {
	owners := w.ownersOfHolders()
	report, err := restore.Run(ctx, restore.Options{Store: sources.Store, DryRun: true})
	if err != nil {
		w.Problems = append(w.Problems, "the interfaces cannot be compared with their checkpoints: "+err.Error())
	}
	outcomes := map[attachment.Key]restore.Outcome{}
	for _, o := range report.Outcomes {
		outcomes[o.Attachment] = o
	}
	for _, r := range records {
		o, ok := outcomes[r.Attachment]
		if !ok && err == nil {
			continue // It was detached meanwhile.
		}
		a := Attached{Record: r, Owner: cmp.Or(r.Owner, owners[r.Attachment.WithoutNetwork()]), Interface: Unknown}
		a.readConfig(w.LeaseDirs)
		if ok {
			a.Interface, a.Reason = interfaceKind(o), o.FullReason()
		} else {
			a.Reason = err.Error()
		}
		w.Attached = append(w.Attached, a)
	}
}

// interfaceKind says how the interface is. Whether an interface is there that could not be restored is seen in its sandbox.
func interfaceKind(o restore.Outcome) Kind {
	switch {
	case o.IsAsRecorded(), o.State == restore.SandboxGone:
		return Fine
	case o.State == restore.ToRestore:
		return LostInterface
	case o.State == restore.ToRepair, o.Live != nil:
		return WrongInterface
	}
	return Unknown
}

// ownersOfHolders returns the owners by their attachments.
func (w *Snapshot) ownersOfHolders() map[attachment.Key]attachment.Owner {
	byAttachment := map[attachment.Key]attachment.Owner{}
	for _, l := range w.leases() {
		for _, h := range l.Holders {
			byAttachment[h.Key("").WithoutNetwork()] = l.Owner
		}
	}
	return byAttachment
}

// readConfig notes the addresses that relink-ipam gave, and where their leases are, by what the runtime gave and got. dirs are the
// directories that are read.
func (a *Attached) readConfig(dirs []string) {
	cni := a.Record.CNI
	var config netConf
	if json.Unmarshal(cni.Config, &config) != nil || config.IPAM.Type == "" {
		return
	}
	a.LeaseStore = cmp.Or(config.IPAM.Store, a.Record.Attachment.Network)
	if config.IPAM.Type != "relink-ipam" {
		return
	}
	a.Assigned = attachment.ResultAddresses(cni.Result)
	if dir, err := lease.Dir(config.IPAM.DataDir); err == nil && !slices.Contains(dirs, resolveLinks(dir)) {
		a.LeaseDir = dir
	}
}
