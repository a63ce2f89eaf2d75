package attach

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
)

// Del detaches the sandbox. It forgets the checkpoint, so that no restore brings the interface back.
// Then it deletes the interface, and then it gives the addresses back. It is no error if the
// namespace, the interface, the master or the checkpoint is gone: Del looks up nothing of the
// configuration in the host. The record says where the sandbox is. If it does not, CNI_NETNS counts. A chained plugin deletes no
// interface: its DEL comes before that of the interface plugin.
func (p Plugin) Del(args *skel.CmdArgs) error {
	c, err := p.beginRecorded(args, true)
	if err != nil {
		return err
	}
	return c.exclusively(c.detach)
}

// detach is Del while nothing else works on the sandbox.
func (c *call) detach(ctx context.Context) (err error) {
	if c.host, err = kernel.OpenHost(); err != nil {
		return err
	}
	recorded, err := c.loadRecord()
	if err != nil {
		return err
	}
	if c.plugin.isChained() {
		if err := c.beginDetach(recorded); err != nil {
			return err
		}
	}
	if err := c.store.Forget(c.args.ContainerID, c.args.IfName); err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var deleted error
	if !c.plugin.isChained() {
		deleted = c.deleteInterface(recorded)
	}
	// The host's routes to the addresses go before somebody else gets these.
	if err := cniplugin.Join(deleted, c.removeHostAccess(ctx, recorded)); err != nil {
		return err
	}
	return c.callIPAM(ipamPlugin.Del)
}

// loadRecord returns the record of the attachment, nil if none can be read. Without a record only
// CNI_NETNS says where the interface is. A relative path, which no ADD takes, could lead elsewhere
// then, and the interface would outlive its checkpoint.
func (c *call) loadRecord() (*checkpoint.Record, error) {
	r, err := c.store.Load(c.args.ContainerID, c.args.IfName)
	switch {
	case err == nil:
		return &r, nil
	case errors.Is(err, checkpoint.ErrNoCheckpoint), c.args.Netns == "", filepath.IsAbs(c.args.Netns):
		return nil, nil
	}
	return nil, cniplugin.EnvError("CNI_NETNS", c.args.Netns, "must be an absolute path, as the checkpoint does not say where the interface is: "+err.Error())
}

// openRecorded opens the namespace to detach from, if that is there, and not the host's. It is the recorded one if
// that is found, else the one at CNI_NETNS.
func (c *call) openRecorded(recorded *checkpoint.Record) (err error) {
	if recorded != nil {
		if c.sandbox, err = kernel.OpenSame(recorded.Namespace); err == nil {
			return nil
		}
	}
	if c.args.Netns == "" {
		return nil
	}
	c.sandbox, err = kernel.Open(c.args.Netns)
	switch {
	case errors.Is(err, kernel.ErrNoNamespace):
		return nil
	case err == nil && c.isHost():
		c.sandbox.Close()
		c.sandbox = nil
	}
	return err
}

// isHost says that the sandbox is the host's own namespace.
func (c *call) isHost() bool { return c.sandbox.CheckSame(c.host.Identity()) == nil }

// deleteInterface deletes the interface if its namespace is still the recorded one, even if the
// interface was renamed. recorded is nil after a repeated DEL, or for the runtime's DEL after a
// failed ADD. Then it deletes an interface of the plugin's own kind, unless another attachment has
// it: a killed ADD may have left one.
func (c *call) deleteInterface(recorded *checkpoint.Record) error {
	if err := c.openRecorded(recorded); err != nil {
		return err
	}
	if c.sandbox == nil {
		return c.awaitInterfaceGone(recorded)
	}
	// A kill can have left an interface under construction. The sandbox's lock keeps off everybody who could be building it.
	if err := kernel.DeleteUnfinished(c.sandbox); err != nil {
		return err
	}
	deletable, err := c.mayDeleteInterface(recorded)
	if err != nil || !deletable {
		return err
	}
	name := c.args.IfName
	if recorded != nil {
		if name, err = c.sandbox.CurrentName(recorded.Interface.Link); err != nil {
			return fmt.Errorf("delete interface: %w", err)
		}
	}
	if err := c.sandbox.DeleteTogether(append(c.podEnd(recorded), name)...); err != nil {
		return fmt.Errorf("delete interface: %w", err)
	}
	return nil
}

func (c *call) mayDeleteInterface(recorded *checkpoint.Record) (bool, error) {
	if recorded != nil {
		// It is a stranger's. What was in the recorded one went with that.
		return c.sandbox.CheckSame(recorded.Namespace) == nil, nil
	}
	kind, err := c.sandbox.Kind(c.args.IfName)
	if ignoreGone(err) != nil {
		return false, err
	}
	missing := err != nil
	if !missing && kind != c.plugin.Kind {
		return false, nil
	}
	if attached, err := c.isOtherAttachments(c.sandbox.Identity()); err != nil || attached {
		return false, err
	}
	// A capture may have remembered it, or be about to. A restore would bring it back, even if it is
	// gone again.
	if err := c.noteDetach(); err != nil {
		return false, err
	}
	return !missing, nil
}

// isOtherAttachments says whether another attachment has the interface. A checkpoint that a capture wrote
// without knowing the container ID does not count.
func (c *call) isOtherAttachments(sandbox attachment.Namespace) (bool, error) {
	records, _, err := c.store.List()
	if err != nil {
		return false, cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	unnamed := checkpoint.UnnamedID(sandbox)
	return slices.ContainsFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.IfName == c.args.IfName && r.Attachment.ContainerID != unnamed && r.Namespace.Same(sandbox) == nil
	}), nil
}

const (
	// namespaceEndTimeout is how long a DEL waits for an interface whose namespace ends. Usually that takes some milliseconds. Something may
	// keep the namespace for long, and a DEL never fails for that.
	namespaceEndTimeout = 2 * time.Second
	namespaceEndPoll    = 5 * time.Millisecond
)

// awaitInterfaceGone waits until the interface is gone whose namespace cannot be opened any more. The kernel ends a namespace some time after its
// last user, and until then the interface answers for its addresses: nobody else may have them.
func (c *call) awaitInterfaceGone(recorded *checkpoint.Record) error {
	if recorded == nil || recorded.Interface.ParentsInSandbox || len(recorded.Interface.Parents) == 0 {
		return nil
	}
	for deadline := time.Now().Add(namespaceEndTimeout); ; time.Sleep(namespaceEndPoll) {
		exists, err := c.host.Receives(recorded.Interface.Parents[0].IfIndex, recorded.Interface.Link.MAC)
		if err != nil || !exists || time.Now().After(deadline) {
			return err
		}
	}
}
