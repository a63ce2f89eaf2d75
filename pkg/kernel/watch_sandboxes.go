package kernel

import (
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// SandboxWatch hears many namespaces through one socket. It hears changes of devices, addresses, routes, rules,
// neighbours that somebody made, forwarding settings and qdiscs. It keeps no namespace open, so a namespace can end
// while the watch hears it.
//
// The kernel does not report most sysctls, proxy neighbours, and a permanent neighbour that becomes a learnt one.
type SandboxWatch struct {
	*Watch
	host *Namespace
}

// sandboxGroups are the groups that a SandboxWatch hears. RTNLGRP_NSID reports which namespaces have ended.
var sandboxGroups = append([]int{
	unix.RTNLGRP_NSID, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, unix.RTNLGRP_TC,
}, addressingGroups...)

// WatchSandboxes hears the namespaces that Add names. n is the host, and stays open until the watch is closed. The watch
// needs CAP_NET_BROADCAST.
func (n *Namespace) WatchSandboxes(receiveBuffer int) (*SandboxWatch, error) {
	w, err := n.watch(rtnl.Subscription{Groups: sandboxGroups, AllNamespaces: true, ReceiveBuffer: receiveBuffer})
	if err != nil {
		return nil, err
	}
	go w.listen()
	return &SandboxWatch{Watch: w, host: n}, nil
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
	if s, heard := w.sources[number]; heard && s.namespace == namespace {
		return nil
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
