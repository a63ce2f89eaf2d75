package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// member is what the loop knows about an attachment that has a checkpoint.
type member struct {
	record checkpoint.Record
	// stack is nil while the sandbox is not found. searchedAt is then the time of the last search. absent says that no search has found the sandbox
	// since, also while a restore searches again: no loss is proven.
	stack      *stack
	searchedAt time.Time
	absent     bool
	// finding is why the checkpoint is not renewed. drift is what the loop makes of it.
	finding *watch.Refusal
	drift   *drift
	// lost says what became of the interface since it was lost.
	lost *lostInterface
}

// isLost says that what the attachment is on has gone.
func (m *member) isLost() bool { return m.stack != nil && m.stack.loss != nil }

// stack is what some attachments are on: their records name the same devices, and so they are lost together.
type stack struct {
	key string
	// record is the record of one of them, now or before, with the key in the place of its container ID.
	record  checkpoint.Record
	members map[*member]bool
	// changes is how often an attachment has come or gone.
	changes int
	chain   *chain
	loss    *restore.Loss
	// away is the loss of a NIC that is neither in its sandbox nor in the host.
	away *restore.Loss
	// takenAway says that somebody took the interfaces away before the loss, which is to stay so.
	takenAway bool
	// cutOff says that nothing reaches the interfaces.
	cutOff bool
}

// lossToRestore is the loss of those that the agent restores.
func (s *stack) lossToRestore() *restore.Loss {
	if s.takenAway {
		return nil
	}
	return s.loss
}

// stackKey is the same for records that name the same devices of the host. It begins with the name of the lowest.
func stackKey(r checkpoint.Record) string {
	var parts any = r.Interface.Link // Nobody shares a NIC.
	base := r.Attachment.ContainerID
	if parents := r.Interface.Parents; r.Interface.Link.Kind != netstate.KindNIC && len(parents) > 0 {
		if base = parents[len(parents)-1].Name; r.Interface.ParentsInSandbox {
			return " in sandbox " + r.Attachment.ContainerID + " " + base
		}
		parents = slices.Clone(parents)
		for i := range parents {
			parents[i].Carried = nil // It says nothing about the device.
		}
		parts = parents
	}
	b, _ := json.Marshal(parts) // It was read as JSON.
	return base + " " + string(b)
}

// lowest returns the record of the sandbox that says what r is on in the host. It is r itself unless that is on another interface.
func (a *Agent) lowest(r checkpoint.Record) checkpoint.Record {
	parents := r.Interface.Parents
	if !r.Interface.ParentsInSandbox || len(parents) == 0 {
		return r
	}
	for _, b := range a.recordsBeside(r) {
		if b.Interface.Link.Name == parents[len(parents)-1].Name && !b.Interface.ParentsInSandbox {
			return b
		}
	}
	return r
}

// sandboxRead takes over what the store has of a sandbox now.
func (a *Agent) sandboxRead(before, after indexedSandbox) {
	current := checkpoint.KeysOf(after.records)
	for _, r := range before.records {
		if !current[r.Attachment] {
			a.remove(a.members[r.Attachment])
		}
	}
	shareUID(after.records)
	for _, r := range after.records {
		m := a.members[r.Attachment]
		if m == nil {
			m = &member{}
			a.members[r.Attachment], a.unread[m] = m, true
		}
		a.captured.count(m.record.CapturedAt, r.CapturedAt)
		a.accessChanged = a.accessChanged || m.record.HostAccess != nil || r.HostAccess != nil
		if r.AnnouncementOwed {
			a.concerns[m], a.stale = true, true
		}
		if m.record.Namespace != r.Namespace {
			m.searchedAt, m.absent = time.Time{}, false
		}
		a.assign(m, r.Pod)
		m.record = r
		a.place(m)
	}
	a.unreadable += after.unreadable - before.unreadable
	a.accessChanged = a.accessChanged || after.unreadable != before.unreadable
	if after.moving {
		a.hasUnfinishedMove.Store(true) // Nobody knows whether that move will be killed.
	}
}

// shareUID gives the UID of their pod to those records of a sandbox that lack it: not every runtime tells plugins the UID, and the agent has it from
// the runtime.
func shareUID(records []checkpoint.Record) {
	for i := range records {
		for p, r := range records {
			if pod := &records[i].Pod; i != p && pod.UID == "" && pod.Namespace == r.Pod.Namespace && pod.Name == r.Pod.Name {
				pod.UID = r.Pod.UID
			}
		}
	}
}

// remove forgets an attachment that has no checkpoint any more.
func (a *Agent) remove(m *member) {
	m.searchedAt = time.Now()
	a.place(m)
	a.unassign(m)
	a.accessChanged = a.accessChanged || m.record.HostAccess != nil
	a.captured.count(m.record.CapturedAt, time.Time{})
	a.driftsChanged = a.driftsChanged || m.drift != nil && m.drift.Confirmed
	delete(a.members, m.record.Attachment)
	delete(a.concerns, m)
	delete(a.unread, m)
}

// place puts the attachment on its stack. A new stack belongs to the chain that the attachment was in before, so that the chain keeps its
// state when a restore has written other names or indices.
func (a *Agent) place(m *member) {
	var next *stack
	if m.searchedAt.IsZero() {
		r := a.lowest(m.record)
		takenAway := m.drift != nil && m.drift.TakenAway
		key := stackKey(r)
		if takenAway {
			key += " taken away"
		}
		if next = a.stacks[key]; next == nil {
			r.Attachment.ContainerID = key
			next = &stack{key: key, record: r, members: map[*member]bool{}, takenAway: takenAway}
			if m.stack != nil {
				next.chain, next.away = m.stack.chain, m.stack.away
			}
			a.judge(next)
			a.stacks[key], a.regrouping = next, true
		}
	}
	if next == m.stack {
		return
	}
	a.changedPods[m.record.Pod] = true
	if m.stack != nil {
		delete(m.stack.members, m)
		m.stack.changes++
		if len(m.stack.members) == 0 {
			delete(a.stacks, m.stack.key)
			a.regrouping = true
		}
	}
	if m.stack = next; next != nil {
		next.members[m] = true
		next.changes++
	}
}

// judge finds out which of the stacks are lost.
func (a *Agent) judge(stacks ...*stack) {
	records := make([]checkpoint.Record, len(stacks))
	for i, s := range stacks {
		records[i] = s.record
	}
	for i, loss := range restore.Losses(a.devices, records) {
		s := stacks[i]
		lost := s.loss != nil
		s.loss = cmp.Or(loss, s.away)
		if lost && s.loss == nil {
			for m := range s.members { // A device that was in another namespace can have its index again.
				a.refresher.CheckpointsChanged(m.record.Attachment.ContainerID, a.recordsBeside(m.record))
				a.setAbsent(m, false)
			}
		}
		before := s.cutOff
		if s.cutOff = cutsOff(s.lossToRestore(), s.record.Interface.Parents, a.devices); s.cutOff != before {
			for m := range s.members {
				a.changedPods[m.record.Pod] = true
			}
		}
	}
}

// regroup groups the stacks into chains again, if there are other stacks than before.
func (a *Agent) regroup() {
	if !a.regrouping {
		return
	}
	a.regrouping = false
	var records, distinct []checkpoint.Record
	for _, key := range slices.Sorted(maps.Keys(a.stacks)) {
		records = append(records, a.stacks[key].record)
		distinct = append(distinct, withDistinctNames(a.stacks[key].record))
	}
	a.nics = restore.NICs(records)
	var chains []*chain
	claimed := map[*chain]bool{nil: true}
	for _, group := range restore.Chains(distinct, nil) {
		var c *chain
		var stacks []*stack
		for _, r := range group.Records {
			s := a.stacks[r.Attachment.ContainerID]
			if stacks = append(stacks, s); c == nil && !claimed[s.chain] {
				c = s.chain
			}
		}
		if c == nil {
			c = &chain{}
		}
		claimed[c] = true
		c.base, _, _ = strings.Cut(group.Base, " ")
		c.setStacks(stacks)
		chains = append(chains, c)
	}
	for _, c := range a.chains {
		if !claimed[c] && c.view.running {
			c.setStacks(nil)
			chains = append(chains, c)
		}
	}
	a.chains = chains
}

// withDistinctNames returns the record for restore.Chains: NICs whose hardware is known are told apart by that, and not by their names. NICs
// can have exchanged their names, and then the records have old and new names for a while.
func withDistinctNames(r checkpoint.Record) checkpoint.Record {
	distinct := func(name string, nic netstate.NIC) string {
		if !nic.Identified() {
			return name
		}
		return name + " " + nic.Hardware()
	}
	r.Interface.Parents = slices.Clone(r.Interface.Parents)
	for i := range r.Interface.Parents {
		p := &r.Interface.Parents[i]
		if p.Name = distinct(p.Name, p.NIC); p.Bond != nil {
			bond := *p.Bond
			bond.Members = slices.Clone(bond.Members)
			for m := range bond.Members {
				bond.Members[m].Name = distinct(bond.Members[m].Name, bond.Members[m].NIC)
			}
			p.Bond = &bond
		}
	}
	return r
}

// noteAbsent notes which sandboxes the restore did not find. The loop searches for them again after a while, or when their records name
// other namespaces.
func (a *Agent) noteAbsent(records []checkpoint.Record, absent map[attachment.Key]bool, instant time.Time) {
	for _, r := range records {
		m := a.members[r.Attachment]
		if m == nil || m.record.Namespace != r.Namespace {
			continue
		}
		if a.setAbsent(m, absent[r.Attachment]); m.absent {
			m.searchedAt, a.concerns[m] = instant, true
			a.accessChanged = true
			a.place(m)
		}
	}
}

func (a *Agent) setAbsent(m *member, absent bool) {
	if m.absent != absent {
		m.absent, a.changedPods[m.record.Pod] = absent, true
	}
}

// expireAbsent searches again for the sandboxes whose last search is some time ago.
func (a *Agent) expireAbsent(instant time.Time) {
	for m := range a.concerns {
		if !m.searchedAt.IsZero() && instant.Sub(m.searchedAt) >= absentInterval {
			m.searchedAt, a.accessChanged, a.stale = time.Time{}, true, true
			a.place(m)
			a.setAbsent(m, m.isLost()) // A restore searches only for what is lost.
		}
	}
}

// tellHostAccess tells the Reconciler about the host accesses of sandboxes that were found.
func (a *Agent) tellHostAccess() {
	if !a.accessChanged {
		return
	}
	var records []checkpoint.Record
	for _, m := range a.members {
		if m.record.HostAccess != nil && m.stack != nil {
			records = append(records, m.record)
		}
	}
	a.accessChanged = false
	a.hostAccess.SetRecords(records, a.unreadable == 0)
}
