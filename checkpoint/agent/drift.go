package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// drift is an attachment that differs from its record while its parent is there. The record stays as it is, because a
// capture refuses the state.
type drift struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	Reason     string         `json:"reason"`
	// Since is when it was seen first.
	Since time.Time `json:"since"`
	// Settled says that it was seen again after driftSettles, with the parent still there.
	Settled bool `json:"settled"`
	// TakenAway says that the interface was gone or down then. Somebody wants this pod off the wire. When the parent goes
	// and comes back, the agent does not put the pod on the wire again.
	TakenAway bool `json:"takenAway"`
	// CapturedAt is that of the record. Another record ends the drift.
	CapturedAt time.Time `json:"capturedAt"`
	// Index is the interface's in the record, 0 if it is not known. A restore that somebody asked for may have given the
	// interface another one. That ends the drift, even if the agent did not run then and the interface is lost by now.
	Index int `json:"index,omitempty"`
	// nextLook is when it may be looked again whether the interface is back, and skipped says that a look is due then.
	nextLook time.Time
	skipped  bool
	// lasts says that it was seen again after driftSettles, whoever caused it.
	lasts bool
}

// driftSettles is how long a difference lasts before it counts. A parent that goes takes its interfaces with it, and the
// kernel tells of these first.
const driftSettles = time.Second

// lookAtDrift takes the refresher's findings over, without those that are losses.
func (a *Agent) lookAtDrift(lost map[attachment.Key]bool, now time.Time) {
	found, changed := map[attachment.Key]bool{}, false
	for _, f := range a.refresher.Findings() {
		found[f.Attachment] = true
		if lost[f.Attachment] {
			continue
		}
		d := a.drifts[f.Attachment]
		if d == nil {
			d = &drift{Attachment: f.Attachment, Pod: f.Pod, Since: now}
			a.drifts[f.Attachment] = d
		}
		d.note(f.Reason, now)
		if !d.Settled && now.Sub(d.Since) >= driftSettles {
			changed = a.judge(d, now) || changed
		}
	}
	for key, d := range a.drifts {
		r, known := a.recordOf(key)
		if !known || a.ends(d, r, found[key], lost[key]) {
			delete(a.drifts, key)
			changed = changed || d.Settled
		}
	}
	if changed {
		a.saveDrifts()
	}
}

// note notes the reason why the checkpoint is not renewed now. Another reason can say that somebody has taken the
// interface away since.
func (d *drift) note(reason string, now time.Time) {
	if d.Reason != reason && d.Settled && !d.TakenAway {
		d.Settled, d.Since = false, now
	}
	d.Reason = reason
}

// judge looks whether the interface was taken away. It returns false if that is not certain: then the agent looks again
// after driftSettles.
func (a *Agent) judge(d *drift, now time.Time) bool {
	d.lasts = true
	r, known := a.recordOf(d.Attachment)
	is := unsure
	if known {
		is = a.presenceOf(r)
	}
	if is == unsure {
		d.Since = now
		return false
	}
	d.Settled, d.TakenAway, d.CapturedAt, d.Index = true, is == away, r.CapturedAt, r.Interface.Link.Index
	return true
}

// ends says that the drift is over. found says that the refresher finds it now, and lost that the parent has gone.
func (a *Agent) ends(d *drift, r checkpoint.Record, found, lost bool) bool {
	switch {
	case !d.Settled:
		return lost || !found
	case !r.CapturedAt.Equal(d.CapturedAt), d.Index != 0 && r.Interface.Link.Index != d.Index:
		return true
	case d.TakenAway:
		return a.isBack(d, r)
	}
	return lost || !found
}

// lookShare is the part of the loop's time that may be spent on one interface that was taken away: 1/lookShare. A pod can have
// thousands of devices, and then a look takes long.
const lookShare = 50

// isBack looks whether an interface that was taken away is there again, unless it looked a moment ago.
func (a *Agent) isBack(d *drift, r checkpoint.Record) bool {
	began := time.Now()
	if d.skipped = began.Before(d.nextLook); d.skipped {
		return false
	}
	is := a.presenceOf(r) == present
	d.nextLook = began.Add(lookShare * time.Since(began))
	return is
}

func (a *Agent) presenceOf(r checkpoint.Record) presence {
	return presenceOf(a.restorer.Host(), r, a.index.sandboxes[r.Attachment.ContainerID])
}

// withoutTakenAway returns the chain's losses without those of interfaces that somebody had taken away before.
func (a *Agent) withoutTakenAway(c *chain) []*restore.Loss {
	for i, r := range c.Records {
		if d := a.drifts[r.Attachment]; d != nil && d.TakenAway {
			c.losses[i] = nil
		}
	}
	return c.losses
}

func (a *Agent) recordOf(key attachment.Key) (checkpoint.Record, bool) {
	records := a.index.sandboxes[key.ContainerID]
	i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment == key })
	if i < 0 {
		return checkpoint.Record{}, false
	}
	return records[i], true
}

func (a *Agent) driftFile() string { return filepath.Join(a.Store.Dir(), ".agent", "drift.json") }

// saveDrifts keeps what has settled over a restart of the agent.
func (a *Agent) saveDrifts() {
	settled := []drift{}
	for _, d := range a.drifts {
		if d.Settled {
			settled = append(settled, *d)
		}
	}
	slices.SortFunc(settled, func(a, b drift) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
	b, err := json.MarshalIndent(settled, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(a.driftFile()), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(a.driftFile(), append(b, '\n'), 0o600)
	}
	if err != nil {
		a.Log.Warn("drift cannot be noted: after a restart the agent may undo such a change together with a loss", "error", err)
	}
}

func (a *Agent) loadDrifts() error {
	b, err := os.ReadFile(a.driftFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var settled []drift
	if err := json.Unmarshal(b, &settled); err != nil {
		return fmt.Errorf("%s: %w", a.driftFile(), err)
	}
	for _, d := range settled {
		a.drifts[d.Attachment] = &d
	}
	return nil
}
