package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
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

// updateDrifts takes over the findings that have changed, of the refresher and of the Reconciler.
func (a *Agent) updateDrifts(instant time.Time) {
	allSeen := a.refresher.HasLookedAtAll() // First this: all that was read then is known to be read.
	for m := range a.unread {               // Then these: what a reading refuses is told before that the sandbox was read.
		if a.refresher.HasRead(m.record.Attachment.ContainerID) {
			delete(a.unread, m)
			a.changedPods[m.record.Pod] = true
		}
	}
	a.allSeen = a.allSeen || allSeen
	for key, finding := range a.refresher.TakeRefusals() {
		if m := a.members[key]; m != nil {
			m.finding, a.concerns[m], a.changedPods[m.record.Pod] = finding, true, true
		}
	}
	access := map[*member]watch.Refusal{}
	for _, f := range a.hostAccess.Drifts() {
		if m := a.members[f.Attachment]; m != nil {
			access[m], a.concerns[m] = watch.Refusal{Drift: f}, true
		}
	}
	for m := range a.concerns {
		finding := m.finding
		if f, found := access[m]; found && finding == nil {
			finding = &f
		}
		a.updateDrift(m, finding, instant)
		if finding == nil && m.drift == nil && m.lost == nil && !m.record.AnnouncementOwed && m.searchedAt.IsZero() {
			delete(a.concerns, m)
		}
	}
	if a.driftsChanged && instant.Sub(a.driftsSavedAt) >= driftDelay {
		a.saveDrifts()
	}
}

// updateDrift makes a drift of the finding, unless that is a loss. finding is nil if there is none.
func (a *Agent) updateDrift(m *member, finding *watch.Refusal, instant time.Time) {
	if finding != nil && (finding.WentAlone || !m.isLost()) {
		if m.drift == nil {
			m.drift = &drift{Drift: finding.Drift, Since: instant}
		}
		m.drift.setReason(finding.Reason, instant)
		if finding.WentAlone && !m.drift.Confirmed { // The loss, if there is one, came later.
			a.noteConfirmed(m, true)
		}
		if !m.drift.Confirmed && instant.Sub(m.drift.Since) >= driftDelay {
			a.confirmDrift(m, instant)
		}
	}
	if finding == nil && m.stack != nil && m.stack.away != nil {
		m.stack.away = nil // It is there again, or the sandbox has gone.
		a.judge(m.stack)
	}
	if d := m.drift; d != nil && a.driftEnded(m, finding != nil) {
		m.drift, a.changedPods[m.record.Pod] = nil, true
		a.driftsChanged = a.driftsChanged || d.Confirmed
		a.place(m)
	}
}

// setReason notes why the checkpoint is not renewed now. A new reason can mean that somebody has now taken the interface
// away.
func (d *drift) setReason(reason string, instant time.Time) {
	if d.Reason != reason && d.Confirmed && !d.TakenAway {
		d.Confirmed, d.Since = false, instant
	}
	d.Reason = reason
}

// confirmDrift looks whether somebody has taken the interface away. If that is not certain, the agent looks again after driftDelay.
func (a *Agent) confirmDrift(m *member, instant time.Time) {
	d, r := m.drift, m.record
	d.persistent = true
	state := a.presenceOf(r)
	if state <= nicAway {
		if loss := restore.AwayNICLoss(a.devices, r.Interface.Link); state == nicAway && loss != nil && m.stack != nil {
			m.stack.away = loss
			a.judge(m.stack)
		}
		d.Since = instant
		return
	}
	a.noteConfirmed(m, state == away)
}

// noteConfirmed notes that the drift is certain, and whether somebody has taken the interface away.
func (a *Agent) noteConfirmed(m *member, takenAway bool) {
	d, r := m.drift, m.record
	d.Confirmed, d.persistent, d.TakenAway, d.CapturedAt, d.Index = true, true, takenAway, r.CapturedAt, r.Interface.Link.Index
	d.nextLook = time.Now().Add(driftDelay) // It has just been looked at. Most often the whole pod goes.
	a.driftsChanged, a.changedPods[r.Pod] = true, true
	a.place(m)
}

// driftEnded says that the drift is over. found says that it is still a finding.
func (a *Agent) driftEnded(m *member, found bool) bool {
	d, r, lost := m.drift, m.record, m.isLost()
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
	// All are looked at again together: else each would wake the loop for the others.
	d.nextLook = began.Add(lookShare * time.Since(began)).Truncate(driftDelay).Add(driftDelay)
	return exists
}

func (a *Agent) presenceOf(r checkpoint.Record) presence {
	return presenceOf(a.restorer.Host(), r, a.recordsBeside(r))
}

// recordsBeside returns all records of the sandbox of r.
func (a *Agent) recordsBeside(r checkpoint.Record) []checkpoint.Record {
	return a.index.sandboxes[r.Attachment.ContainerID].records
}

func (a *Agent) driftFile() string { return filepath.Join(a.Store.AgentDir(), "drift.json") }

// saveDrifts saves the confirmed drifts, so that they survive a restart of the agent. It writes nothing if they are as saved.
func (a *Agent) saveDrifts() {
	if !a.driftsChanged {
		return
	}
	a.driftsChanged, a.driftsSavedAt = false, time.Now()
	confirmed := []drift{}
	for m := range a.concerns {
		if m.drift != nil && m.drift.Confirmed {
			confirmed = append(confirmed, *m.drift)
		}
	}
	slices.SortFunc(confirmed, func(a, b drift) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
	if err := statefile.Save(a.driftFile(), confirmed); err != nil {
		a.Log.Warn("drift cannot be noted: after a restart the agent may undo such a change together with a loss", "error", err)
	}
}

// loadDrifts loads the saved drifts of the attachments that still have checkpoints.
func (a *Agent) loadDrifts() error {
	var confirmed []drift
	if err := statefile.Load(a.driftFile(), &confirmed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range confirmed {
		if m := a.members[d.Attachment]; m != nil {
			m.drift, a.concerns[m] = &d, true
			a.place(m)
		}
	}
	return nil
}
