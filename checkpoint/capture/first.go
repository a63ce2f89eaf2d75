package capture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// FirstRecording writes the first checkpoints of the interfaces of one sandbox, whoever attached them. It looks at no other sandbox.
type FirstRecording struct {
	Store *checkpoint.Store
	// Host is the host's namespace. Devices are its devices as they are now.
	Host    *kernel.Namespace
	Devices netstate.Devices
	// Namespace is the sandbox. ContainerIDs are the IDs under which it has checkpoints.
	Namespace    attachment.Namespace
	ContainerIDs []string
	Identities   Identities
	// Seen is since when each interface without a checkpoint is there, by its index. Record changes the map: those that are new came before
	// ChangedAt.
	Seen      map[int]time.Time
	ChangedAt time.Time
	// Marks gets the marks of the sysctls that were recorded, as a Renewal needs them.
	Marks map[int]kernel.SettingsMark
	// DryRun writes nothing.
	DryRun bool
}

const (
	// UncachedRest is how long an interface that no cache names is there before it is recorded: a hot-plug may be under way.
	UncachedRest = 10 * time.Second
	// UnknownRest is UncachedRest in a sandbox that no runtime and no cache knows. The kubelet gives a runtime four minutes for all ADDs of a
	// sandbox (twice its --runtime-request-timeout, in pkg/kubelet/cri/remote).
	UnknownRest = 5 * time.Minute
	// writeLimit bounds the wait for other programs that work on the sandbox.
	writeLimit = 200 * time.Millisecond
)

// Obstacle says in a word why an interface has no checkpoint.
type Obstacle string

// All obstacles.
const (
	// ObstacleUnderWay: a plugin may still be at work on it. Most of these are recorded soon.
	ObstacleUnderWay Obstacle = "under_way"
	// ObstacleNotAsked: the agent records only what relink attached.
	ObstacleNotAsked Obstacle = "not_asked"
	// ObstacleVF: it is a VF of SR-IOV.
	ObstacleVF Obstacle = "vf"
	// ObstacleDown: it is down.
	ObstacleDown Obstacle = "down"
	// ObstacleRefused: a checkpoint cannot hold it, or nobody can tell whether it was attached.
	ObstacleRefused Obstacle = "refused"
	// ObstacleFailed: it could not be looked at, or the checkpoint could not be written.
	ObstacleFailed Obstacle = "failed"
)

// Obstacles are all obstacles.
var Obstacles = []Obstacle{ObstacleUnderWay, ObstacleNotAsked, ObstacleVF, ObstacleDown, ObstacleRefused, ObstacleFailed}

// Unrecorded is an interface without a checkpoint.
type Unrecorded struct {
	InterfaceOutcome
	Obstacle Obstacle
}

// FirstReport is what a FirstRecording found and did.
type FirstReport struct {
	// Unrecorded are the interfaces that have no checkpoint afterwards, but for the pods' own.
	Unrecorded []Unrecorded
	// Written are the checkpoints that were written.
	Written []checkpoint.Record
	// UnderWay says that a plugin may be at work, also on a NIC in a namespace that may be no pod's, which is not in Unrecorded.
	UnderWay bool
	// Empty and Lacking are about a sandbox that has no interface on a device of the host. Empty says that it lacks none that a CNI cache names, and
	// Lacking that it does: its ADD is not over, or that interface is no device of the kernel, such as one of DPDK.
	Empty, Lacking bool
}

// Record writes the checkpoints of the interfaces on which no plugin is at work. The caller has seen that the sandbox is quiet. It returns
// kernel.ErrNoNamespace or attachment.ErrOtherNamespace if the sandbox is gone.
func (f FirstRecording) Record(ctx context.Context) (report FirstReport, err error) {
	namespace, err := kernel.OpenSame(f.Namespace)
	if err != nil {
		return report, err
	}
	defer namespace.Close()
	records, unreadable := f.Store.ListSandboxes(f.ContainerIDs)
	l := &inspector{host: f.Host, hostDevices: f.Devices, records: indexRecords(records, unreadable), cache: f.Identities.entries[f.Namespace.File()], onlyLinks: true}
	found, err := l.inspectNamespace(namespace, true)
	if err != nil {
		return report, err
	}
	f.noteSeen(found)
	if len(found)+len(records)+len(unreadable) == 0 {
		report.Lacking, err = f.lacksInterface(namespace)
		if report.Empty = !report.Lacking; err != nil {
			return report, err
		}
	}
	if f.Identities.Stage(f.Namespace.File()) == DELDue {
		return report, nil
	}
	r := &captureRun{Options: Options{Store: f.Store}, byAgent: true, inspector: l}
	for _, a := range found {
		obstacle, reason := f.obstacle(a)
		if obstacle == "" && a.State == Captured {
			if obstacle, reason, err = f.tentative(namespace, a); err != nil {
				return report, err
			}
		}
		report.UnderWay = report.UnderWay || obstacle == ObstacleUnderWay
		if obstacle != "" && a.State != Skipped {
			report.Unrecorded = append(report.Unrecorded, Unrecorded{a.decided(a.State, reason).InterfaceOutcome, obstacle})
		} else if a.State == Captured {
			r.actions = append(r.actions, a)
		}
	}
	l.onlyLinks = false
	err = f.write(ctx, namespace, r, &report)
	return report, err
}

// write carries out the actions of the run, and adds what becomes of them to the report.
func (f FirstRecording) write(ctx context.Context, namespace *kernel.Namespace, r *captureRun, report *FirstReport) (err error) {
	marks := map[int]kernel.SettingsMark{}
	for _, a := range r.actions {
		if marks[a.Interface.Link.Index], err = namespace.SettingsMark(a.Interface.Link.Index); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	r.writeActions(ctx)
	for _, a := range r.actions {
		if a.State == Captured {
			f.Marks[a.Interface.Link.Index] = marks[a.Interface.Link.Index]
			report.Written = append(report.Written, recordOf(a, AgentWriter))
		} else if obstacle, reason := f.obstacle(a); obstacle != "" {
			report.Unrecorded = append(report.Unrecorded, Unrecorded{a.decided(a.State, reason).InterfaceOutcome, obstacle})
		}
	}
	return nil
}

// lacksInterface says that an interface is not there that libcni's results or Multus name.
func (f FirstRecording) lacksInterface(namespace *kernel.Namespace) (bool, error) {
	for _, e := range f.Identities.entries[f.Namespace.File()] {
		if e.Attachment.IfName == "" { // It is the runtime's, for the whole sandbox.
			continue
		}
		if exists, err := namespace.Exists(e.Attachment.IfName); err != nil || !exists {
			return true, err
		}
	}
	return false, nil
}

// noteSeen notes since when the interfaces are there.
func (f FirstRecording) noteSeen(found []InterfaceAction) {
	present := map[int]bool{}
	for _, a := range found {
		index := a.Interface.Link.Index
		if present[index] = true; f.Seen[index].IsZero() {
			f.Seen[index] = f.ChangedAt
		}
	}
	maps.DeleteFunc(f.Seen, func(index int, _ time.Time) bool { return !present[index] })
}

// obstacle says why the interface gets no checkpoint now, empty if it gets one or needs none.
func (f FirstRecording) obstacle(a InterfaceAction) (Obstacle, string) {
	stage, reason := f.Identities.stage(f.Namespace.File())
	since := f.Seen[a.Interface.Link.Index]
	age := time.Since(since)
	switch {
	case a.State == change.Kept:
		return "", ""
	case (a.State == Skipped || a.State == change.Refused) && f.Identities.AsOf.Before(f.ChangedAt):
		return ObstacleUnderWay, "nobody has said yet whose it is"
	case a.State == Skipped && a.Reason == unknownNIC && age < UnknownRest:
		return ObstacleUnderWay, reason
	case a.State == Skipped:
		return "", ""
	case a.State == change.Failed:
		return ObstacleFailed, a.Reason
	case a.isVF:
		return ObstacleVF, a.Reason
	case a.State == change.Refused && !a.Interface.Link.Up && a.Interface.Link.Kind != "":
		return ObstacleDown, a.Reason
	case a.State == change.Refused:
		return ObstacleRefused, a.Reason
	case f.DryRun:
		return ObstacleNotAsked, "the agent records only what relink's plugins attach (--record=own)"
	case f.Identities.AsOf.Before(since):
		return ObstacleUnderWay, "nobody has said yet whose it is"
	case stage == ADDUnderWay && age < UnknownRest:
		return ObstacleUnderWay, fmt.Sprintf("%s: it is recorded after %s", reason, UnknownRest)
	case age < UncachedRest && stage == ADDKept:
		return ObstacleUnderWay, fmt.Sprintf("%s: it is recorded after %s", reason, UncachedRest)
	case age < UncachedRest && !f.isCached(a):
		return ObstacleUnderWay, fmt.Sprintf("no CNI cache names it: it is recorded after %s", UncachedRest)
	}
	return "", ""
}

// isCached says that a cache names the interface.
func (f FirstRecording) isCached(a InterfaceAction) bool {
	return slices.ContainsFunc(f.Identities.entries[f.Namespace.File()], func(e cacheEntry) bool {
		return e.Attachment.ContainerID == a.Attachment.ContainerID && e.Attachment.IfName == a.Interface.Link.Name
	})
}

// tentative says that duplicate address detection is not over.
func (f FirstRecording) tentative(namespace *kernel.Namespace, a InterfaceAction) (Obstacle, string, error) {
	tentative, err := namespace.HasTentative(a.Interface.Link.Index)
	if err != nil || !tentative || !a.Interface.Carrier {
		return "", "", err
	}
	return ObstacleUnderWay, "the kernel still asks whether another host has its address", nil
}
