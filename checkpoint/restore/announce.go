package restore

import (
	"context"
	"time"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// announce tells the neighbours, if the parent can send. If not, announceLate does
// it when it can. An interface on top of another one in the sandbox is behind that
// one's MAC or tag, which is announced itself. A NIC of the sandbox's own has no carrier
// so soon.
func (w *work) announce() {
	w.outcome.at = w.record.Namespace
	if !w.parent.Carrier || w.record.Interface.ParentsInSandbox || w.isNIC() {
		return
	}
	if err := w.announcer.Announce(w.parent.Index, w.record.Interface); err == nil {
		w.outcome.Announced = true
	}
}

// announceLate announces what was built on devices that had no carrier yet, as
// soon as they have, and reports those that don't get one in time.
func (r *run) announceLate(ctx context.Context, outcomes []*Outcome) {
	if r.DryRun {
		return
	}
	start := time.Now()
	defer func() { r.report.Waited += time.Since(start) }()
	for ; ; time.Sleep(pollInterval) {
		left := r.announcePending(outcomes)
		if len(left) == 0 {
			return
		}
		if time.Since(start) >= r.Wait || ctx.Err() != nil {
			for _, o := range left {
				r.report.problem(o.Parent + " has no carrier: the addresses on it are not announced")
			}
			return
		}
	}
}

// announcePending announces what can be and returns what can't.
func (r *run) announcePending(outcomes []*Outcome) []*Outcome {
	var devices netstate.Devices
	var left []*Outcome
	for _, o := range outcomes {
		if o.Announced || (o.State != Restored && o.State != Repaired) || len(o.Interface.Addresses) == 0 || o.Interface.ParentsInSandbox {
			continue
		}
		if o.Interface.Link.Kind == netstate.KindNIC {
			if !r.announceOnNIC(o) {
				left = append(left, o)
			}
			continue
		}
		if devices == nil {
			var err error
			if devices, err = r.host.Devices(); err != nil {
				r.report.problem(err.Error())
				return nil
			}
		}
		parent, ok := devices.ByName(o.Parent)
		if !ok || !parent.Carrier {
			left = append(left, o)
			continue
		}
		if err := r.announcer.Announce(parent.Index, o.Interface); err != nil {
			r.report.problem(err.Error())
		}
		o.Announced = true
	}
	return left
}

// announceOnNIC announces the addresses of a NIC in the sandbox, where it can send, and
// says whether there is nothing left to do about it.
func (r *run) announceOnNIC(o *Outcome) bool {
	sandbox, err := kernel.Open(o.at.Path)
	if err != nil || o.at.Same(sandbox.Identity()) != nil {
		return true // Gone meanwhile.
	}
	defer sandbox.Close()
	devices, err := sandbox.Devices()
	if err != nil {
		r.report.problem(err.Error())
		return true
	}
	nic, ok := devices.ByName(o.Interface.Link.Name)
	if !ok || !nic.Carrier {
		return !ok
	}
	announcer, err := sandbox.NewAnnouncer()
	if err == nil {
		defer announcer.Close()
		err = announcer.Announce(nic.Index, o.Interface)
	}
	if err != nil {
		r.report.problem(err.Error())
	}
	o.Announced = true
	return true
}
