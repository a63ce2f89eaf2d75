package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
)

// Shown is one host access as it is.
type Shown struct {
	Attachment attachment.Key    `json:"attachment"`
	Pod        attachment.Pod    `json:"pod,omitzero"`
	Access     hostaccess.Access `json:"hostAccess"`
	// Problems say what is not as it should be, and which address gets no answer. It is empty if all is well.
	Problems []string `json:"problems,omitempty"`
}

// Report is what Show has found.
type Report struct {
	Node hostaccess.Node `json:"node"`
	Pods []Shown         `json:"pods"`
	// Problems are the host's. Notes say what its settings do not allow.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// Well says that nothing is wrong.
func (r Report) Well() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Pods, func(s Shown) bool { return len(s.Problems) > 0 })
}

// answerLimit bounds the wait for an answer of a pod or of the node. They are one hop apart.
const answerLimit = time.Second

// Show compares the host access of the records with what it should be. It also asks each pod from the node, and the node from each
// pod, whether an answer comes: a firewall can be in the way. It changes nothing. all says that these are all of the node's records.
func Show(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record, all bool) (Report, error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return Report{}, err
	}
	defer host.Close()
	node, err := hostaccess.ReadNode(host)
	if err != nil {
		return Report{}, err
	}
	records = slices.DeleteFunc(slices.Clone(records), func(r checkpoint.Record) bool { return r.HostAccess == nil })
	report := Report{Node: node, Pods: make([]Shown, len(records))}
	lacks := Host{Store: store, Host: host, Records: records, All: all}.Differs(node)
	report.Problems, report.Notes = slices.Concat(lacks.Plan.Summary(), lacks.Filter), obstacles(records)
	if err := lacks.Err(); err != nil {
		report.Problems = append(report.Problems, printable.Joined(err)) // The pods are shown all the same.
	}
	if node.NoIPv6 && slices.ContainsFunc(records, func(r checkpoint.Record) bool { return slices.ContainsFunc(r.HostAccess.Addresses, netip.Addr.Is6) }) {
		report.Notes = append(report.Notes, "the node has no IPv6: the pods have host access by IPv4 alone")
	}
	if node.Without > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("the node has too many addresses: the pods have no routes to %d of them", node.Without))
	}
	const atOnce = 16
	inparallel.Do(atOnce, len(records), func(i int) {
		if ctx.Err() == nil {
			report.Pods[i] = show(host, node, records[i])
		}
	})
	return report, ctx.Err()
}

func show(host *kernel.Namespace, node hostaccess.Node, r checkpoint.Record) Shown {
	s := Shown{Attachment: r.Attachment, Pod: r.Pod, Access: *r.HostAccess}
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		s.Problems = append(s.Problems, printable.Joined(err))
		return s
	}
	defer sandbox.Close()
	seen, err := r.AccessIn(host, sandbox).Look(node)
	if err != nil {
		s.Problems = append(s.Problems, printable.Joined(err))
		return s
	}
	s.Problems = seen.Differences
	if seen.FilterErr != nil {
		s.Problems = append(s.Problems, printable.Joined(seen.FilterErr))
	}
	if len(s.Problems) > 0 {
		return s
	}
	asked := false
	for _, addr := range r.HostAccess.Addresses {
		source := node.Source4
		if addr.Is6() {
			if source = node.Source6; node.NoIPv6 {
				continue
			}
		}
		asked = true
		s.ask("the node", host, source, addr)
		s.ask("the pod", sandbox, addr, source)
	}
	if !asked {
		s.Problems = append(s.Problems, fmt.Sprintf("there is no path: the pod has the addresses %v, and the node none of their family", r.HostAccess.Addresses))
	}
	return s
}

// ask notes if no answer comes.
func (s *Shown) ask(who string, from *kernel.Namespace, source, to netip.Addr) {
	err := from.Reach(source, to, answerLimit)
	if err == nil {
		return
	}
	problem := fmt.Sprintf("%s (%s) does not reach %s: %v", who, source, to, err)
	if errors.Is(err, kernel.ErrNoAnswer) || errors.Is(err, kernel.ErrRejected) {
		problem += fmt.Sprintf(". A firewall of the node or of the pod may drop it: the device is %s in the host and %s in the pod", s.Access.HostName, s.Access.Name)
	}
	s.Problems = append(s.Problems, problem)
}

// obstacles are settings of the node that stand in the way. relink changes none of them.
func obstacles(records []checkpoint.Record) (all []string) {
	services := func(ipv6 bool) bool {
		return slices.ContainsFunc(records, func(r checkpoint.Record) bool {
			return slices.ContainsFunc(slices.Concat(r.HostAccess.Services, r.HostAccess.Extra), func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 })
		})
	}
	for _, f := range []struct {
		ipv6         bool
		path, sysctl string
	}{
		{false, "/proc/sys/net/ipv4/ip_forward", "net.ipv4.ip_forward"}, {true, "/proc/sys/net/ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"},
	} {
		if b, err := os.ReadFile(f.path); err == nil && strings.TrimSpace(string(b)) == "0" && services(f.ipv6) {
			all = append(all, fmt.Sprintf("%s is 0: the pods reach no ClusterIP whose backend is another pod. kube-proxy needs 1, too", f.sysctl))
		}
	}
	return all
}
