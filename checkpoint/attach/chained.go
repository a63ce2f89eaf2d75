package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// addChained remembers the interface as it is now and prints prevResult as it came, even with parts that relink does not know. If an interface cannot be
// remembered, the pod starts all the same: addChained says so on stderr and writes nothing. Host access needs a
// checkpoint, so relink-host-access fails then.
func (c *call) addChained() error {
	if c.PrevResult == nil {
		return netconf.NoInterface(c.plugin.Name)
	}
	if _, err := c.Previous(); err != nil {
		return err
	}
	return c.attach(func(ctx context.Context, undo *cniplugin.Undo) (err error) {
		if err := c.saveCheckpoint(ctx, undo); err != nil {
			return err
		}
		failpoint.Here("before printing")
		defer failpoint.Here("after printing")
		if c.hostEnd != nil {
			if c.PrevResult, err = withInterface(c.PrevResult, c.hostEnd); err != nil {
				return fmt.Errorf("prevResult: %w", err)
			}
		}
		_, err = fmt.Fprintf(os.Stdout, "%s\n", c.PrevResult)
		return err
	})
}

// withInterface adds an interface at the end of those of a result: its addresses name interfaces by their index. What relink does not
// know in it stays.
func withInterface(result cniplugin.Result, iface *current.Interface) (cniplugin.Result, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(result, &keys); err != nil {
		return nil, err
	}
	var interfaces []json.RawMessage
	if keys["interfaces"] != nil {
		if err := json.Unmarshal(keys["interfaces"], &interfaces); err != nil {
			return nil, err
		}
	}
	added, err := json.Marshal(iface)
	if err != nil {
		return nil, err
	}
	if keys["interfaces"], err = json.Marshal(append(interfaces, added)); err != nil {
		return nil, err
	}
	return json.Marshal(keys)
}

// saveCheckpoint saves the checkpoint, or says why there is none.
func (c *call) saveCheckpoint(ctx context.Context, undo *cniplugin.Undo) error {
	live, err := c.capture(c.args.IfName, kernel.CheckpointExtent)
	if err == nil {
		err = checkDescribable(live)
	}
	if vf := new(kernel.VFError); errors.As(err, &vf) {
		return cniplugin.ConfigError("type", c.plugin.Name, vf.Error()+". Take "+c.plugin.Name+" out of this list: the pod then starts, and relink does not restore it")
	}
	if errors.Is(err, kernel.ErrUnsupported) || errors.Is(err, kernel.ErrNoDevice) {
		if c.HostAccess != nil {
			return c.accessRefused(fmt.Sprintf("%s cannot have host access, which is for macvlan and ipvlan: %v", c.args.IfName, err))
		}
		c.plugin.warn("%s of %s can't be remembered, and will not be restored: %v", c.args.IfName, c.args.ContainerID, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	record := c.record(ctx, live, c.earlierAccess(), c.PrevResult)
	if c.HostAccess != nil && record.HostAccess != nil {
		return cniplugin.ConfigError("type", c.plugin.Name, "the pod has host access already, by an earlier plugin of the list: keep it once")
	}
	if c.HostAccess != nil {
		if record.HostAccess, err = c.addHostAccess(ctx, live, undo); err != nil {
			return err
		}
		c.hostEnd = hostEnd(record.HostAccess)
	}
	undo.Push("checkpoint", func() error { return c.store.Forget(c.args.ContainerID, c.args.IfName) })
	if err := c.store.Save(record); err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	c.store.EndDetach(c.sandbox.Identity(), c.args.IfName)
	return c.forgetUnnamed()
}

// earlierAccess returns the host access that relink-host-access gave before in the same list, nil for none.
func (c *call) earlierAccess() *hostaccess.Access {
	r, err := c.store.Load(c.args.ContainerID, c.args.IfName)
	if err != nil || c.sandbox.CheckSame(r.Namespace) != nil {
		return nil
	}
	return r.HostAccess
}

// checkDescribable returns ErrUnsupported for an interface that no checkpoint can hold.
func checkDescribable(live netstate.Interface) error {
	if err := live.Validate(); err != nil {
		return fmt.Errorf("%w: %w", kernel.ErrUnsupported, err)
	}
	return nil
}

// forgetUnnamed removes the checkpoint that `relink capture` wrote of the same interface without
// knowing its container ID. A capture can do that between the interface plugin's ADD and this one,
// or after a killed ADD.
func (c *call) forgetUnnamed() error {
	id := checkpoint.UnnamedID(c.sandbox.Identity())
	// A capture that is about to write it already has the lock, and so the directory. A later one
	// sees the note of a DEL, or the ADD's hold on the parents.
	if !c.store.InUse(id) {
		return nil
	}
	return lockError(c.store.WithLock(context.Background(), id, func() error {
		if r, err := c.store.Load(id, c.args.IfName); err == nil && c.plugin.Kind != "" && r.Interface.Link.Kind != c.plugin.Kind {
			return nil // Another plugin's.
		}
		return c.store.Forget(id, c.args.IfName)
	}))
}

// beginDetach makes sure that no `relink capture` remembers the interface anew before the interface
// plugin has deleted it.
func (c *call) beginDetach(recorded *checkpoint.Record) error {
	if err := c.openRecorded(recorded); err != nil || c.sandbox == nil {
		return nil //nolint:nilerr // It is gone, and the interface with it.
	}
	return cniplugin.Join(c.noteDetach(), kernel.DeleteUnfinished(c.sandbox))
}

// noteDetach forgets what a capture may have remembered of an interface that is about to be deleted.
// It makes sure that no capture remembers it anew.
func (c *call) noteDetach() error {
	// If nothing can be written, nobody can write a checkpoint either.
	_ = c.store.BeginDetach(c.sandbox.Identity(), c.args.IfName)
	return c.forgetUnnamed()
}
