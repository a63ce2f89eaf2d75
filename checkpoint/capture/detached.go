package capture

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// IsForeign says that another program attached the interface, whose DEL leaves the record.
func IsForeign(r checkpoint.Record) bool { return r.Writer == AgentWriter || r.Writer == Writer }

// ResultOf returns the result of the attachment's ADD if libcni kept it when it was recorded, otherwise nil.
func ResultOf(r checkpoint.Record) json.RawMessage {
	if string(r.CNI.Result) == "null" {
		return nil
	}
	return r.CNI.Result
}

// wentAlone says that the interface is gone, and that its parents were there after that. When a parent goes, the kernel first sets it down
// (dev_close_many), and deletes what is on it after that.
func (r *renewalRun) wentAlone(record checkpoint.Record) bool {
	_, exists := r.inspector.records.device(record)
	return !exists && r.parentsStand(record)
}

// parentsStand says that the very devices that the record names are there and up, in the host or in the sandbox.
func (r *renewalRun) parentsStand(record checkpoint.Record) bool {
	namespace, parents := r.Host, checkpoint.HostParents(record.Interface)
	if record.Interface.ParentsInSandbox {
		namespace, parents = r.inspector.namespace, record.Interface.Parents
	}
	return len(parents) > 0 && !slices.ContainsFunc(parents, func(p netstate.Device) bool { return p.IfIndex == 0 }) && ParentsUp(namespace, parents)
}

// isReplaced says that another program has detached the recorded interface, and attached the live one under its name.
func (r *renewalRun) isReplaced(record checkpoint.Record, live netstate.Interface) bool {
	recorded, parents := record.Interface, checkpoint.HostParents(live)
	switch {
	case !IsForeign(record):
		return false
	case recorded.Link.NIC != nil && live.Link.NIC != nil: // It is on nothing: only the hardware tells.
		return recorded.Link.NIC.Contradicts(*live.Link.NIC)
	case live.Link.Index == recorded.Link.Index, len(parents) == 0, !r.parentsStand(record):
		return false
	}
	return live.Link.MAC != recorded.Link.MAC || parents[0].IfIndex != recorded.Parents[0].IfIndex
}

// ParentsUp says that all recorded devices are in the namespace, and up. It ignores devices without an index, as old records have them.
func ParentsUp(namespace *kernel.Namespace, recorded []netstate.Device) bool {
	return !slices.ContainsFunc(recorded, func(p netstate.Device) bool {
		if p.IfIndex == 0 {
			return false
		}
		d, err := namespace.Device(p.IfIndex)
		return err != nil || !d.Up
	})
}

// ForgetDetached forgets those checkpoints of the sandbox that chosen selects, of interfaces that another program attached and that are not
// there: another one can have their names. It returns their attachments, and the errors of Renew.
func (n Renewal) ForgetDetached(ctx context.Context, chosen func(attachment.Key) bool) (forgotten []attachment.Key, err error) {
	err = n.underLock(ctx, func() error {
		namespace, err := kernel.OpenSame(n.Namespace)
		if err != nil {
			return err
		}
		defer namespace.Close()
		devices, err := namespace.Devices()
		if err != nil {
			return err
		}
		forgotten, err = n.forget(func(r checkpoint.Record) bool {
			_, exists := devices.ByIndex(r.Interface.Link.Index)
			return !exists && chosen(r.Attachment)
		})
		return err
	})
	return forgotten, err
}

// ForgetGone forgets the checkpoints of interfaces that another program attached to the sandbox, which the caller has proven gone.
func (n Renewal) ForgetGone(ctx context.Context) (forgotten []attachment.Key, err error) {
	err = n.underLock(ctx, func() error {
		forgotten, err = n.forget(func(checkpoint.Record) bool { return true })
		return err
	})
	return forgotten, err
}

// listRecords returns the records of the sandbox.
func (n Renewal) listRecords() []checkpoint.Record {
	records, _ := n.Store.ListSandboxes(n.ContainerIDs)
	return slices.DeleteFunc(records, func(r checkpoint.Record) bool { return r.Namespace.Same(n.Namespace) != nil })
}

// forget forgets the foreign ones of the sandbox's records that chosen selects.
func (n Renewal) forget(chosen func(checkpoint.Record) bool) (forgotten []attachment.Key, err error) {
	for _, r := range n.listRecords() {
		if !IsForeign(r) || !chosen(r) {
			continue
		}
		if err := n.Store.ForgetListed(r, nil); err != nil {
			return forgotten, err
		}
		forgotten = append(forgotten, r.Attachment)
	}
	return forgotten, nil
}
