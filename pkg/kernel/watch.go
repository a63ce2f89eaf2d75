package kernel

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/wait"
)

// Change says that something about a device has changed. It does not have the new state: the caller looks at the
// device.
type Change struct {
	// Namespace is the one given to Add, or the watch's own.
	Namespace attachment.Namespace
	// Index is the device's index. It is 0 if the change is about no device or about several.
	Index int
	// Down says that a device was down or went. The kernel reports this before it drops the addresses and routes of the
	// device (dev_close_many and __dev_notify_flags in net/core/dev.c). The device may be up again by now.
	Down bool
	// NamespaceGone: the kernel says that the namespace has ended, so the watch does not hear it any more. It is the
	// last change of that namespace. Very rarely the namespace has not ended: another one had its number before, and
	// ended while Add ran. Then a new Add succeeds.
	NamespaceGone bool
	// Before are addresses and routes that came or went before the device was first down, in order. A reading of the
	// device may come too late for them. Before does not have every change. Only a SandboxWatch fills it in.
	Before []Event
	// TooMuch says that there were more changes than Before can have. Then Before is empty.
	TooMuch bool
}

// Changes are what has changed since the last call of Take.
type Changes struct {
	// Overrun says that messages are lost. Anything may have changed in every namespace of the watch: look at everything
	// again. The end of a namespace may have been missed too.
	Overrun bool
	// Muted says the same, after a Mute. Then it is no sign of too many messages.
	Muted bool
	// List has an entry for each device that changed.
	List []Change
}

const (
	// receiveBuffer is how many bytes of messages the kernel keeps for a watch.
	receiveBuffer = 4 << 20
	// messageSize is the least space that a message takes in the receive buffer: the kernel counts the whole struct
	// sk_buff.
	messageSize = 512
	// restInterval is how long a watch rests after it wakes. So a flood of changes wakes it at most 500 times per second.
	// Take does not wait for that.
	restInterval = 2 * time.Millisecond
	// maxBefore is how many changes a device can have in Before. With more changes at a time, Before is empty.
	maxBefore = 64
	// maxMarks is how many devices of a namespace are marked separately. A pod can make any number of devices.
	maxMarks = 256
)

// Watch hears changes of devices. Its memory is bounded: equal changes become one. It never makes the kernel wait.
// Several goroutines may use it at once. The caller closes it.
type Watch struct {
	listener *rtnl.Listener
	changed  chan struct{}
	ended    chan struct{}
	// maxMessages is how many messages the receive buffer can hold.
	maxMessages int

	mu sync.Mutex
	// sources are the namespaces that are heard, by their numbers.
	sources map[int]*watchedNamespace
	dirty   []*watchedNamespace
	overrun bool
	// muted says that the watch has heard nothing for a while since the last Take.
	muted bool
	// blocked says that the kernel sends nothing more until the socket is emptied.
	blocked bool
}

// watchedNamespace is one namespace that is heard.
type watchedNamespace struct {
	namespace attachment.Namespace
	// marks are the changes by the index of the device. They are empty unless the source is dirty.
	marks map[int]*deviceChanges
	// withEvents says that the source fills in Before.
	withEvents bool
}

// deviceChanges is what has changed about one device.
type deviceChanges struct {
	Change
	// closed says that Before is complete.
	closed bool
}

// Watch hears the changes of all devices of n, but not of their addresses and routes. It reports everything that
// changes after Watch has returned. So the caller first calls Watch, and then looks at the devices.
func (n *Namespace) Watch() (*Watch, error) {
	return n.watchOwn(receiveBuffer, unix.RTNLGRP_LINK)
}

// WatchAddressing is Watch, and also hears the changes of addresses, routes and policy rules.
func (n *Namespace) WatchAddressing() (*Watch, error) {
	return n.watchOwn(receiveBuffer, addressingGroups...)
}

// addressingGroups are the groups that WatchAddressing hears.
var addressingGroups = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
}

// watchOwn hears the groups. Tests have a small receive buffer.
func (n *Namespace) watchOwn(bufferSize int, groups ...int) (*Watch, error) {
	return n.watch(rtnl.Subscription{Groups: groups, ReceiveBuffer: bufferSize}, map[int]*watchedNamespace{rtnl.LocalNSID: {namespace: n.id}})
}

// watch returns a watch that listens.
func (n *Namespace) watch(hearing rtnl.Subscription, sources map[int]*watchedNamespace) (*Watch, error) {
	fd, err := n.openSocket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := attachFilter(fd, watchFilter()); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("filter of netlink messages: %w", err)
	}
	listener, err := rtnl.NewListener(fd, hearing)
	if err != nil {
		return nil, fmt.Errorf("listen to changes in %s: %w", n.Path(), err)
	}
	w := &Watch{
		listener: listener, changed: make(chan struct{}, 1), ended: make(chan struct{}),
		maxMessages: 2*hearing.ReceiveBuffer/messageSize + 1, sources: sources,
	}
	go w.listen()
	return w, nil
}

// Close ends the watch and its goroutine. It can be called twice.
func (w *Watch) Close() {
	w.listener.Close()
	<-w.ended
}

// Changed gets a value when there is something to Take. One value can stand for many changes.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Take returns what has changed since the last Take. A change that was complete before the call is in this result or in
// an earlier one.
func (w *Watch) Take() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read()
	changes := Changes{Overrun: w.overrun, Muted: w.muted}
	for _, s := range w.dirty {
		for _, m := range s.marks {
			changes.List = append(changes.List, m.Change)
		}
		s.marks = nil
	}
	w.dirty, w.overrun, w.muted = nil, w.blocked, false
	return changes
}

func (w *Watch) listen() {
	defer close(w.ended)
	for w.listener.Wait() == nil {
		w.mu.Lock()
		w.read()
		pending := w.overrun || len(w.dirty) > 0
		w.mu.Unlock()
		if pending {
			wait.Wake(w.changed)
		}
		time.Sleep(restInterval)
	}
}

// read reads all messages that were there when it was called. The caller holds w.mu.
func (w *Watch) read() {
	for range w.maxMessages {
		found, err := w.listener.Read(w.handle)
		if errors.Is(err, rtnl.ErrOverrun) {
			w.overrun, w.blocked = true, true
			continue
		}
		if !found {
			w.blocked = false
			return
		}
	}
}

// handle handles a message about the namespace with that number.
func (w *Watch) handle(number int, m *syscall.NetlinkMessage) {
	if number == rtnl.LocalNSID && (m.Header.Type == unix.RTM_NEWNSID || m.Header.Type == unix.RTM_DELNSID) {
		w.handleNSID(m)
		return
	}
	s, heard := w.sources[number]
	if !heard {
		return
	}
	index, found, err := parseChange(m)
	w.overrun = w.overrun || err != nil
	if err != nil || !found {
		return
	}
	marked := w.mark(s, index)
	marked.Down = marked.Down || isLinkDown(m)
	if s.withEvents && index != 0 {
		marked.addEvent(m)
	}
}

// mark marks the device, and returns its mark.
func (w *Watch) mark(s *watchedNamespace, index int) *deviceChanges {
	if s.marks == nil {
		s.marks = map[int]*deviceChanges{}
		w.dirty = append(w.dirty, s)
	}
	m, exists := s.marks[index]
	if !exists && len(s.marks) >= maxMarks {
		index = 0
		m, exists = s.marks[index]
	}
	if !exists {
		m = &deviceChanges{Change: Change{Namespace: s.namespace, Index: index}, closed: index == 0}
		s.marks[index] = m
	}
	return m
}

// SandboxWatch hears many namespaces through one socket. It hears changes of devices, addresses, routes, rules,
// neighbours that somebody made, forwarding settings and qdiscs. It keeps no namespace open, so a namespace can end
// while the watch hears it.
//
// The kernel does not report most sysctls, proxy neighbours, and a permanent neighbour that becomes a learnt one.
type SandboxWatch struct {
	*Watch
	host *Namespace
}

// sandboxGroups are the groups that a SandboxWatch hears, beside RTNLGRP_NSID, which reports which namespaces have ended.
var sandboxGroups = append([]int{
	unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_TC,
}, addressingGroups...)

// WatchSandboxes hears the namespaces that Add names. n is the host, and stays open until the watch is closed. The watch
// needs CAP_NET_BROADCAST.
func (n *Namespace) WatchSandboxes() (*SandboxWatch, error) {
	groups := append([]int{unix.RTNLGRP_NSID}, sandboxGroups...)
	w, err := n.watch(rtnl.Subscription{Groups: groups, AllNamespaces: true, ReceiveBuffer: receiveBuffer}, map[int]*watchedNamespace{})
	if err != nil {
		return nil, err
	}
	return &SandboxWatch{Watch: w, host: n}, nil
}

// Mute makes the watch hear nothing until Unmute, but for the ends of namespaces. It is for somebody who changes most of the namespaces, and
// looks at them afterwards: for each message of a namespace, and each socket that hears all of them, the kernel searches the numbers of all
// namespaces (peernet2id in net/core/net_namespace.c). With 3,000 namespaces that takes 0.2 ms, which whoever makes the change waits for.
func (w *SandboxWatch) Mute() error {
	return w.listener.SetMembership(unix.NETLINK_DROP_MEMBERSHIP, sandboxGroups...)
}

// Unmute ends Mute. What changes after Unmute has returned is heard again.
func (w *SandboxWatch) Unmute() error {
	err := w.listener.SetMembership(unix.NETLINK_ADD_MEMBERSHIP, sandboxGroups...)
	w.mu.Lock()
	w.muted = true
	w.mu.Unlock()
	return err
}

// Add makes the watch hear the namespace. The watch reports everything that changes after Add has returned. A namespace
// can be added twice. Add returns the errors of OpenSame.
func (w *SandboxWatch) Add(namespace attachment.Namespace) error {
	ns, err := OpenSame(namespace)
	if err != nil {
		return err
	}
	defer ns.Close()
	number, err := w.host.ensureNSID(ns)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", namespace.Path, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s, heard := w.sources[number]
	if heard && s.namespace == namespace {
		return nil
	}
	if heard && s.namespace.Same(namespace) != nil { // That one has ended, and its message is not read yet.
		w.mark(s, 0).NamespaceGone = true
		wait.Wake(w.changed)
	}
	w.sources[number] = &watchedNamespace{namespace: namespace, withEvents: true}
	return nil
}

// Remove stops hearing the namespace. The kernel still sends messages about it, and the watch ignores them.
func (w *SandboxWatch) Remove(namespace attachment.Namespace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for number, s := range w.sources {
		if s.namespace == namespace {
			delete(w.sources, number)
			s.marks = nil
		}
	}
}

// handleNSID handles the message that a namespace got a number, or that a number is free again.
func (w *Watch) handleNSID(m *syscall.NetlinkMessage) {
	number, err := parseNSID(m.Data)
	if err != nil {
		w.overrun = true
		return
	}
	s, heard := w.sources[number]
	if m.Header.Type != unix.RTM_DELNSID || !heard {
		return
	}
	// Later messages with this number are about another namespace.
	delete(w.sources, number)
	w.mark(s, 0).NamespaceGone = true
}

// parseNSID returns the number in a message, or -1 if there is none.
func parseNSID(payload []byte) (number int, err error) {
	number = -1
	// The kernel pads struct rtgenmsg to a multiple of four bytes.
	err = readFields(payload, nl.NewRtGenMsg().Len(), field{unix.NETNSA_NSID, &number})
	return number, err
}
