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
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
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
		d.Reason = f.Reason
		if !d.Settled && now.Sub(d.Since) >= driftSettles {
			r, known := a.recordOf(f.Attachment)
			d.Settled, d.TakenAway, d.CapturedAt = known, known && isTakenAway(r, a.devices), r.CapturedAt
			changed = true
		}
	}
	for key, d := range a.drifts {
		r, known := a.recordOf(key)
		if !known || d.ends(r, found[key], lost[key]) {
			delete(a.drifts, key)
			changed = changed || d.Settled
		}
	}
	if changed {
		a.saveDrifts()
	}
}

// ends says that the drift is over. found says that the refresher finds it now, and lost that the parent has gone.
func (d *drift) ends(r checkpoint.Record, found, lost bool) bool {
	switch {
	case !d.Settled:
		return lost || !found
	case !r.CapturedAt.Equal(d.CapturedAt):
		return true
	case d.TakenAway:
		return isBack(r)
	}
	return lost || !found
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

// isTakenAway looks whether somebody has taken the interface away: it is gone, or it is down and recorded as up. parents are
// the devices of the host.
//
// Some interfaces go or go down without anybody's wish. A NIC goes with its driver, and nothing in the host tells that. A VLAN
// device is down while its parent is. An interface under another name is not gone.
func isTakenAway(r checkpoint.Record, parents netstate.Devices) bool {
	link := r.Interface.Link
	devices, ok := devicesOf(r)
	if !ok {
		return false
	}
	d, there := liveOf(link, devices)
	switch {
	case !there:
		return link.Kind != netstate.KindNIC
	case !link.Up || d.Up:
		return false
	case r.Interface.ParentsInSandbox:
		parents = devices
	}
	return areUp(r.Interface.Parents, parents)
}

// isBack looks whether an interface that was taken away is there and up again.
func isBack(r checkpoint.Record) bool {
	devices, ok := devicesOf(r)
	d, there := liveOf(r.Interface.Link, devices)
	return ok && there && (d.Up || !r.Interface.Link.Up)
}

// devicesOf returns the devices of the record's sandbox. ok is false if nobody can look at them.
func devicesOf(r checkpoint.Record) (devices netstate.Devices, ok bool) {
	sandbox, err := kernel.Open(r.Namespace.Path)
	if err != nil {
		return nil, false
	}
	defer sandbox.Close()
	if r.Namespace.Same(sandbox.Identity()) != nil {
		return nil, false
	}
	devices, err = sandbox.Devices()
	return devices, err == nil
}

// liveOf returns the device that the recorded one is, under whatever name.
func liveOf(link netstate.Link, devices netstate.Devices) (netstate.LiveDevice, bool) {
	if d, there := devices.ByName(link.Name); there {
		return d, true
	}
	d, there := devices.ByIndex(link.Index)
	return d, there && d.Kind == link.Kind
}

// areUp says that all recorded devices are there and up.
func areUp(recorded []netstate.Device, there netstate.Devices) bool {
	return !slices.ContainsFunc(recorded, func(p netstate.Device) bool {
		d, ok := there.ByIndex(p.IfIndex)
		return !ok || !d.Up
	})
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
		a.Log.Warn("what differs cannot be noted: after a restart the agent may undo it together with a loss", "error", err)
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
