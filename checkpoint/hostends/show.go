package hostends

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
)

// PodReport is one host access as it is.
type PodReport struct {
	Attachment attachment.Key    `json:"attachment"`
	Pod        attachment.Pod    `json:"pod,omitzero"`
	Access     hostaccess.Access `json:"hostAccess"`
	// Problems say what is not as it should be, and which address gets no answer. It is empty if all is well.
	Problems []string `json:"problems,omitempty"`
}

// AccessReport is what Inspect has found.
type AccessReport struct {
	Node hostaccess.Node `json:"node"`
	Pods []PodReport     `json:"pods"`
	// Problems are the host's. Notes say what it does not have.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// IsHealthy says that nothing is wrong.
func (r AccessReport) IsHealthy() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Pods, func(s PodReport) bool { return len(s.Problems) > 0 })
}

// probeTimeout bounds the wait for an answer of a pod or of the node. They are one hop apart.
const probeTimeout = time.Second

// Inspect compares the host access of the records with what it should be. It also asks each pod from the node, and the node from each
// pod, whether an answer comes: a firewall can be in the way. It changes nothing. complete says that these are all of the node's records.
func Inspect(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record, complete bool) (AccessReport, error) {
	host, node, err := openNode()
	if err != nil {
		return AccessReport{}, err
	}
	defer host.Close()
	records = slices.DeleteFunc(slices.Clone(records), func(r checkpoint.Record) bool { return r.HostAccess == nil })
	report := AccessReport{Node: node, Pods: make([]PodReport, len(records))}
	lacks := Host{Store: store, Host: host, Records: records, Complete: complete, DryRun: true}.Assert(ctx, node)
	report.Problems = lacks.Steps()
	if err := lacks.Err(); err != nil {
		report.Problems = append(report.Problems, printable.Joined(err)) // The pods are shown all the same.
	}
	if node.NoIPv6 && slices.ContainsFunc(records, func(r checkpoint.Record) bool { return slices.ContainsFunc(r.HostAccess.Addresses, netip.Addr.Is6) }) {
		report.Notes = append(report.Notes, "the node has no IPv6: the pods have host access by IPv4 alone")
	}
	if node.Skipped > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("the node has too many addresses: the pods have no routes to %d of them", node.Skipped))
	}
	const atOnce = 16
	inparallel.Do(atOnce, len(records), func(i int) {
		if ctx.Err() == nil {
			report.Pods[i] = inspectPod(host, node, records[i])
		}
	})
	return report, ctx.Err()
}

func inspectPod(host *kernel.Namespace, node hostaccess.Node, r checkpoint.Record) PodReport {
	s := PodReport{Attachment: r.Attachment, Pod: r.Pod, Access: *r.HostAccess}
	if err := s.inspect(host, node, r); err != nil {
		s.Problems = append(s.Problems, printable.Joined(err))
	}
	return s
}

func (s *PodReport) inspect(host *kernel.Namespace, node hostaccess.Node, r checkpoint.Record) error {
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		return err
	}
	defer sandbox.Close()
	inspection, err := r.HostAccessPod(host, sandbox).Inspect(node)
	if err != nil {
		return err
	}
	if s.Problems = inspection.Differences; len(s.Problems) > 0 || inspection.FilterErr != nil {
		return inspection.FilterErr
	}
	probed := false
	for _, addr := range r.HostAccess.Addresses {
		source := node.Source4
		if addr.Is6() {
			if source = node.Source6; node.NoIPv6 {
				continue
			}
		}
		probed = true
		s.probe("the node", host, source, addr)
		s.probe("the pod", sandbox, addr, source)
	}
	if !probed {
		return fmt.Errorf("there is no path: the pod has the addresses %v, and the node none of their family", r.HostAccess.Addresses)
	}
	return nil
}

// probe notes if no answer comes.
func (s *PodReport) probe(source string, ns *kernel.Namespace, sourceAddr, target netip.Addr) {
	err := ns.ProbeTCP(sourceAddr, target, probeTimeout)
	if err == nil {
		return
	}
	problem := fmt.Sprintf("%s (%s) does not reach %s: %v", source, sourceAddr, target, err)
	if errors.Is(err, kernel.ErrNoAnswer) || errors.Is(err, kernel.ErrRejected) {
		problem += fmt.Sprintf(". A firewall of the node or of the pod may drop it: the device is %s in the host and %s in the pod", s.Access.HostName, s.Access.Name)
	}
	s.Problems = append(s.Problems, problem)
}
