package restore

import (
	"cmp"
	"context"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
)

// Restorer restores lost interfaces without being asked. It is for a process that lives long. Several goroutines may
// use it at once, each for its own chains. The caller closes it.
type Restorer struct {
	store     *checkpoint.Store
	host      *kernel.Namespace
	announcer *kernel.Announcer
}

// NewRestorer returns a Restorer of the host's namespace and the store.
func NewRestorer(store *checkpoint.Store) (*Restorer, error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	announcer, err := host.NewAnnouncer()
	if err != nil {
		host.Close()
		return nil, err
	}
	return &Restorer{store: store, host: host, announcer: announcer}, nil
}

// Close releases what the Restorer has open.
func (r *Restorer) Close() {
	r.announcer.Close()
	r.host.Close()
}

// Host returns the host's namespace. The Restorer owns it.
func (r *Restorer) Host() *kernel.Namespace { return r.host }

// Result is what a task has done.
type Result struct {
	Report
	// Absent are the attachments whose sandboxes are not at their paths and were found nowhere else. Their pods have
	// ended, or will end soon.
	Absent []attachment.Key
	run    *restoreRun
}

// Restore restores the ready records of the task. It looks at the devices when it has the locks. beside are other
// records of the same sandboxes, without a loss: Restore repairs those of their routes that depend on restored
// interfaces. Restore does not wait for devices or carrier. It returns an error if it could not look at anything.
func (r *Restorer) Restore(ctx context.Context, t Task, ready, beside []checkpoint.Record) (*Result, error) {
	run := newRun(Options{Store: r.store, ParentOptions: ParentOptions{RebuildBond: t.RebuildBond, allowed: t.policy().allows}}, r.host)
	run.announcer, run.recorded, run.unasked, run.runner.Patience = r.announcer, t.NICs, true, busyTimeout
	for i, l := range t.Losses {
		if l != nil && l.Member {
			run.scopes[t.Records[i].Attachment] = hostOnly
		}
	}
	for _, b := range beside {
		if hasDependentRoutes(b.Interface) {
			run.scopes[b.Attachment] = dependentRoutes
			ready = append(slices.Clip(ready), b)
		}
	}
	slices.SortStableFunc(ready, bySandboxID)
	report, absent, err := run.restoreRecords(ctx, ready, nil)
	if err != nil {
		return nil, err
	}
	report.Attachments = slices.DeleteFunc(report.Attachments, func(o Outcome) bool {
		return run.scopes[o.Attachment] == dependentRoutes && len(o.Steps) == 0
	})
	return &Result{Report: report, Absent: absent, run: run}, nil
}

// Unannounced returns the records that an earlier restore left unannounced, as a Result for AnnounceConnected. It returns nil
// if there are none.
func (r *Restorer) Unannounced(records []checkpoint.Record) *Result {
	run := newRun(Options{Store: r.store}, r.host)
	run.announcer, run.unasked = r.announcer, true
	c := &chainRestore{run: run}
	for _, record := range records {
		if !record.AnnouncementOwed {
			continue
		}
		o := outcomeOf(record)
		o.AnnouncementOwed, o.namespace, o.NoCarrier = true, record.Namespace, o.Parent
		if onHost(&record) && len(record.Interface.Parents) > 0 {
			o.parentIndex = record.Interface.Parents[0].IfIndex
		} else {
			o.NoCarrier, o.ownLink = record.Interface.Link.Name, true
		}
		c.outcomes = append(c.outcomes, o)
	}
	if len(c.outcomes) == 0 {
		return nil
	}
	run.chains = []*chainRestore{c}
	return &Result{Report: run.report(c.outcomes), run: run}
}

// CountPending returns how many attachments of the result lack carrier or an announcement.
func (r *Result) CountPending() (n int) {
	for _, c := range r.run.chains {
		n += len(pending(c.outcomes))
	}
	return n
}

// AnnounceConnected looks for carrier again, and announces what it can. Then it returns the new value of CountPending.
func (r *Result) AnnounceConnected() (owed int, err error) {
	for _, c := range r.run.chains {
		c.announceConnected()
		owed += len(pending(c.outcomes))
		err = cmp.Or(err, c.unannounced)
	}
	return owed, err
}

func bySandboxID(a, b checkpoint.Record) int { return compareKeys(a.Attachment, b.Attachment) }
