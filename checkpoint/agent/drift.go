package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/statefile"
)

// drift is an attachment that differs from its record while its parent is there. The record stays as it is, because a
// capture refuses a state that is worse than the record.
type drift struct {
	control.Drift
	// Since is when the agent first saw the drift.
	Since time.Time `json:"since"`
	// Confirmed says that the drift was still there after driftDelay, and the parent too.
	Confirmed bool `json:"settled"`
	// TakenAway says that the interface was gone or down then: somebody wants this pod off the network. The agent does
	// not bring the interface back when the parent goes and comes back.
	TakenAway bool `json:"takenAway"`
	// CapturedAt is the record's CapturedAt. A newer record ends the drift.
	CapturedAt time.Time `json:"capturedAt"`
	// Index is the interface's index in the record, 0 if it is not known. Another index there ends the drift: somebody
	// has asked for a restore, which built the interface anew. That counts even if the agent did not run then, or if
	// the interface is lost again.
	Index int `json:"index,omitempty"`
	// nextLook is when the loop may look again whether the interface is back. lookSkipped says that it has to look then.
	nextLook    time.Time
	lookSkipped bool
	// persistent says that the drift was still there after driftDelay, whatever its cause.
	persistent bool
}

// driftDelay is how long a difference lasts before it counts. When a parent goes, its interfaces go too, and the
// kernel reports the interfaces first.
const driftDelay = time.Second

// updateDrifts takes over the refresher's findings, except for those that are losses.
func (a *Agent) updateDrifts(lost map[attachment.Key]bool, instant time.Time) {
	found, changed := map[attachment.Key]bool{}, false
	for _, f := range a.allFindings() {
		found[f.Attachment] = true
		if lost[f.Attachment] {
			continue
		}
		d := a.drifts[f.Attachment]
		if d == nil {
			d = &drift{Drift: f, Since: instant}
			a.drifts[f.Attachment] = d
		}
		d.setReason(f.Reason, instant)
		if !d.Confirmed && instant.Sub(d.Since) >= driftDelay {
			changed = a.confirmDrift(d, instant) || changed
		}
	}
	for key := range a.awayNICs {
		if !found[key] {
			delete(a.awayNICs, key) // It is there again, or the sandbox has gone.
		}
	}
	for key, d := range a.drifts {
		r, ok := a.recordOf(key)
		if !ok || a.driftEnded(d, r, found[key], lost[key]) {
			delete(a.drifts, key)
			changed = changed || d.Confirmed
		}
	}
	if changed {
		a.saveDrifts()
	}
}

// allFindings are the findings of the refresher, and those of the Reconciler about other attachments.
func (a *Agent) allFindings() []control.Drift {
	findings := a.refresher.Refusals()
	reported := map[attachment.Key]bool{}
	for _, f := range findings {
		reported[f.Attachment] = true
	}
	for _, f := range a.hostAccess.Drifts() {
		if !reported[f.Attachment] {
			findings = append(findings, f)
		}
	}
	return findings
}

// setReason notes why the checkpoint is not renewed now. A new reason can mean that somebody has now taken the interface
// away.
func (d *drift) setReason(reason string, instant time.Time) {
	if d.Reason != reason && d.Confirmed && !d.TakenAway {
		d.Confirmed, d.Since = false, instant
	}
	d.Reason = reason
}

// confirmDrift looks whether somebody has taken the interface away. It returns false if that is not certain. Then the agent
// looks again after driftDelay.
func (a *Agent) confirmDrift(d *drift, instant time.Time) bool {
	d.persistent = true
	r, ok := a.recordOf(d.Attachment)
	state := presenceUnknown
	if ok {
		state = a.presenceOf(r)
	}
	if state == presenceUnknown {
		if loss := a.awayNICLoss(r); ok && loss != nil {
			a.awayNICs[d.Attachment] = loss
			a.stale = true // The loop decides about it at once.
		}
		d.Since = instant
		return false
	}
	d.Confirmed, d.TakenAway, d.CapturedAt, d.Index = true, state == away, r.CapturedAt, r.Interface.Link.Index
	return true
}

// driftEnded says that the drift is over. found says that the refresher still reports it. lost says that the parent has gone.
func (a *Agent) driftEnded(d *drift, r checkpoint.Record, found, lost bool) bool {
	switch {
	case !d.Confirmed:
		return lost || !found
	case !r.CapturedAt.Equal(d.CapturedAt), d.Index != 0 && r.Interface.Link.Index != d.Index:
		return true
	case d.TakenAway:
		return a.isBack(d, r)
	}
	return lost || !found
}

// lookShare: at most 1/lookShare of the loop's time goes into looks at one interface that was taken away. A pod can have thousands of
// devices, and then a look takes long.
const lookShare = 50

// isBack looks whether an interface that was taken away is there again. It does not look if the last look was a moment
// ago.
func (a *Agent) isBack(d *drift, r checkpoint.Record) bool {
	began := time.Now()
	if d.lookSkipped = began.Before(d.nextLook); d.lookSkipped {
		return false
	}
	exists := a.presenceOf(r) == present
	d.nextLook = began.Add(lookShare * time.Since(began))
	return exists
}

func (a *Agent) presenceOf(r checkpoint.Record) presence {
	return presenceOf(a.restorer.Host(), r, a.index.sandboxes[r.Attachment.ContainerID].records)
}

// withoutTakenAway returns the chain's losses. It leaves out interfaces that somebody took away before the loss.
func (a *Agent) withoutTakenAway(c *chain) []*restore.Loss {
	for i, r := range c.Records {
		if d := a.drifts[r.Attachment]; d != nil && d.TakenAway {
			c.losses[i] = nil
		}
	}
	return c.losses
}

func (a *Agent) recordOf(key attachment.Key) (checkpoint.Record, bool) {
	records := a.index.sandboxes[key.ContainerID].records
	i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment == key })
	if i < 0 {
		return checkpoint.Record{}, false
	}
	return records[i], true
}

func (a *Agent) driftFile() string { return filepath.Join(a.Store.AgentDir(), "drift.json") }

// saveDrifts saves the settled drifts, so that they survive a restart of the agent.
func (a *Agent) saveDrifts() {
	confirmed := []drift{}
	for _, d := range a.drifts {
		if d.Confirmed {
			confirmed = append(confirmed, *d)
		}
	}
	slices.SortFunc(confirmed, func(a, b drift) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
	if err := statefile.Save(a.driftFile(), confirmed); err != nil {
		a.Log.Warn("drift cannot be noted: after a restart the agent may undo such a change together with a loss", "error", err)
	}
}

func (a *Agent) loadDrifts() error {
	var confirmed []drift
	if err := statefile.Load(a.driftFile(), &confirmed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range confirmed {
		a.drifts[d.Attachment] = &d
	}
	return nil
}
