package gc

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// model is a node and its cluster as they really are.
type model struct {
	uptime    time.Duration
	sandboxes []*podSandbox
	leases    []*leasedAddress
	records   []*record
	// owners has each owner that ever was, and whether a pod of it will still come.
	owners  map[attachment.Owner]bool
	cookies uint64
	// runtimeDown and apiDown say who does not answer. deaf are owners that the API does not tell of.
	runtimeDown, apiDown bool
	deaf                 map[attachment.Owner]bool
	sightings            Sightings
}

// podSandbox is a sandbox.
type podSandbox struct {
	id    string
	of    attachment.Owner
	at    attachment.Namespace
	alive bool
	// runtime is "", "ready" or "stopped".
	runtime string
	died    time.Duration
}

// leasedAddress is an address that is not free.
type leasedAddress struct {
	address  netip.Addr
	of       attachment.Owner
	holders  []lease.Holder
	released time.Time
}

type record struct {
	box *podSandbox
	at  time.Time
}

func (m *model) now() time.Time { return noon.Add(m.uptime) }

// free returns the smallest inode that no living namespace has: the kernel reuses them at once.
func (m *model) inode() uint64 {
	for n := uint64(1); ; n++ {
		if !slices.ContainsFunc(m.sandboxes, func(b *podSandbox) bool { return b.alive && b.at.Inode == n }) {
			return n
		}
	}
}

// beginADD is the part of an ADD that leases an address: the owner's own one if there is one.
func (m *model) beginADD(of attachment.Owner) *podSandbox {
	m.cookies++
	b := &podSandbox{id: fmt.Sprintf("c%d", m.cookies), of: of, alive: true}
	b.at = attachment.Namespace{Path: "/run/netns/" + b.id, BootID: "boot", Device: 4, Inode: m.inode(), Cookie: m.cookies}
	m.sandboxes = append(m.sandboxes, b)
	h := lease.Holder{ContainerID: b.id, IfName: "eth0", Namespace: b.at, Since: m.now()}
	for _, l := range m.leases {
		if l.of == of {
			l.holders = append(l.holders, h)
			return b
		}
	}
	m.leases = append(m.leases, &leasedAddress{address: m.address(), of: of, holders: []lease.Holder{h}})
	return b
}

func (m *model) address() netip.Addr {
	for a := netip.MustParseAddr("10.3.0.2"); ; a = a.Next() {
		if !slices.ContainsFunc(m.leases, func(l *leasedAddress) bool { return l.address == a }) {
			return a
		}
	}
}

// finishADD is the rest of the ADD.
func (m *model) finishADD(b *podSandbox) {
	m.records = append(m.records, &record{b, m.now()})
	b.runtime = "ready"
}

// del is a DEL, however late.
func (m *model) del(b *podSandbox) {
	m.records = slices.DeleteFunc(m.records, func(r *record) bool { return r.box == b })
	for _, l := range m.leases {
		m.removeHolder(l, b.id)
	}
}

// removeHolder removes a holder. The address stays reserved for its owner.
func (m *model) removeHolder(l *leasedAddress, id string) {
	had := len(l.holders)
	l.holders = slices.DeleteFunc(slices.Clone(l.holders), func(h lease.Holder) bool { return h.ContainerID == id })
	if had > 0 && len(l.holders) == 0 {
		l.released = m.now()
	}
}

// removeNamespace takes the namespace away. No DEL has come.
func (m *model) removeNamespace(b *podSandbox) {
	b.alive, b.died = false, m.uptime
	if b.runtime != "" {
		b.runtime = "stopped"
	}
}

// snapshot is what an audit gathers of the model.
func (m *model) snapshot() audit.Snapshot {
	w := audit.Snapshot{
		BootID: "boot", Time: m.now(), Networks: []audit.Network{{Name: "lan", StoreTime: m.now()}},
		Sandboxes: audit.Sandboxes{
			Live: map[attachment.NamespaceFile]audit.LiveNamespace{}, Runtime: map[string]sandbox.RuntimeSandbox{}, Proofs: map[attachment.Namespace]sandbox.Evidence{},
			Judged: map[*lease.Holder]sandbox.Judgement{},
		},
		Owners: audit.Owners{Judged: map[attachment.Owner]owner.Judgement{}},
	}
	if m.runtimeDown {
		w.Sandboxes.NotAsked = "it does not answer"
	}
	index := map[string]int{}
	for i, b := range m.sandboxes {
		index[b.id] = i + 2
		if b.alive {
			live := audit.LiveNamespace{Namespace: b.at}
			for _, l := range m.leases {
				if slices.ContainsFunc(l.holders, func(h lease.Holder) bool { return h.ContainerID == b.id }) {
					live.Addresses = append(live.Addresses, audit.DeviceAddress{Address: l.address, Device: "eth0", Index: index[b.id], Parent: 7})
				}
			}
			w.Sandboxes.Live[b.at.File()] = live
		} else {
			w.Sandboxes.Proofs[b.at] = sandbox.Evidence{Verdict: sandbox.VerdictGone, Reason: "nothing keeps it"}
		}
		if b.runtime != "" && !m.runtimeDown {
			w.Sandboxes.Runtime[b.id] = sandbox.RuntimeSandbox{ContainerID: b.id, Ready: b.runtime == "ready"}
		}
	}
	for _, r := range m.records {
		w.Attached = append(w.Attached, audit.Attached{
			Owner: r.box.of, Interface: audit.Fine, Index: index[r.box.id], Assigned: m.assignedAddresses(r.box),
			Record: checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: r.box.id, IfName: "eth0"}, Namespace: r.box.at, CapturedAt: r.at},
		})
	}
	m.addLeases(&w)
	return w
}

// assignedAddresses is the address that the sandbox was given.
func (m *model) assignedAddresses(b *podSandbox) (all []netip.Addr) {
	for _, l := range m.leases {
		if l.of == b.of {
			all = append(all, l.address)
		}
	}
	return all
}

func (m *model) addLeases(w *audit.Snapshot) {
	for _, l := range m.leases {
		is := lease.Lease{Address: l.address, Network: "lan", Owner: l.of, State: lease.Held, Holders: l.holders}
		if len(l.holders) == 0 {
			is.State, is.ReleasedAt = lease.Reserved, l.released
			w.Owners.Judged[l.of] = m.judge(l.of)
		}
		w.Networks[0].Leases = append(w.Networks[0].Leases, is)
	}
}

func (m *model) judge(o attachment.Owner) owner.Judgement {
	j := owner.Judgement{Owner: o, Standing: owner.Gone, Reason: "404"}
	switch {
	case m.apiDown || m.deaf[o]:
		j.Standing, j.Reason = owner.Unknown, "503"
	case m.owners[o]:
		j.Standing, j.Reason = owner.Exists, "it is there"
	}
	return j
}

// gc makes a pass. It returns why something was freed that lives, or what an audit says of a node on which all is well.
func (m *model) gc() (freed int, wrong error) {
	report := audit.Judge(m.snapshot())
	if report.Errors > 0 {
		return 0, fmt.Errorf("an error on a node without any: %+v", report.Findings[0])
	}
	decisions, sightings := Decide(report, m.sightings, Moment{BootID: "boot", Uptime: m.uptime, Time: m.now()}, Options{Grace: DefaultGrace})
	m.sightings = sightings
	for _, d := range decisions {
		if d.State != ToFree {
			continue
		}
		freed++
		s := d.Subject
		switch {
		case s.Holder != nil:
			wrong = m.checkDead(s.Holder.ContainerID)
			for _, l := range m.leases {
				if l.address == s.Lease.Address {
					m.removeHolder(l, s.Holder.ContainerID)
				}
			}
		case s.Reservation:
			if m.owners[s.Lease.Owner] {
				wrong = fmt.Errorf("%s lives, and its address is freed", s.Lease.Owner)
			}
			m.leases = slices.DeleteFunc(m.leases, func(l *leasedAddress) bool { return l.address == s.Lease.Address })
		default:
			wrong = m.checkDead(s.Checkpoint.Attachment.ContainerID)
			m.records = slices.DeleteFunc(m.records, func(r *record) bool { return r.box.id == s.Checkpoint.Attachment.ContainerID })
		}
		if wrong != nil {
			return freed, wrong
		}
	}
	return freed, nil
}

// checkDead returns an error if the sandbox may be alive, or if it was seen dead for less than a grace.
func (m *model) checkDead(id string) error {
	b := m.sandboxes[slices.IndexFunc(m.sandboxes, func(b *podSandbox) bool { return b.id == id })]
	switch {
	case b.alive:
		return fmt.Errorf("%s is alive", id)
	case b.runtime != "":
		return fmt.Errorf("the runtime owes a DEL for %s", id)
	case m.runtimeDown:
		return fmt.Errorf("%s is freed while the runtime does not answer", id)
	case m.uptime-b.died < DefaultGrace:
		return fmt.Errorf("%s died %s ago", id, m.uptime-b.died)
	}
	return nil
}
