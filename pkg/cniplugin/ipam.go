package cniplugin

import (
	"context"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// IPAM is the delegate that a configuration names in "ipam.type". A plugin
// without one, the empty IPAM, makes interfaces without addresses: all methods do
// nothing then.
type IPAM struct {
	// Type is the delegate's name, found in CNI_PATH.
	Type string
	// Config is the whole network configuration, passed on as it is.
	Config []byte
}

// Add asks for addresses. The caller has seen by Find that there is somebody to ask.
func (i IPAM) Add(ctx context.Context) (*current.Result, error) {
	if i.Type == "" {
		return &current.Result{}, nil
	}
	failpoint.Here("before IPAM ADD")
	r, err := invoke.DelegateAdd(ctx, i.Type, i.Config, nil)
	failpoint.Here("after IPAM ADD")
	if err != nil {
		return nil, i.wrap(err)
	}
	result, err := current.NewResultFromResult(r)
	return result, i.wrap(err)
}

// Find says whether the delegate is there.
func (i IPAM) Find() error {
	if i.Type == "" {
		return nil
	}
	if _, err := invoke.FindInPath(i.Type, filepath.SplitList(os.Getenv("CNI_PATH"))); err != nil {
		return ConfigError("ipam.type", i.Type, err.Error())
	}
	return nil
}

// Del gives the addresses back.
func (i IPAM) Del(ctx context.Context) error { return i.call(ctx, invoke.DelegateDel) }

// Check asks whether the addresses are still held.
func (i IPAM) Check(ctx context.Context) error { return i.call(ctx, invoke.DelegateCheck) }

// Status asks whether addresses can be given.
func (i IPAM) Status(ctx context.Context) error { return i.call(ctx, invoke.DelegateStatus) }

// GC passes the list of valid attachments on.
func (i IPAM) GC(ctx context.Context) error { return i.call(ctx, invoke.DelegateGC) }

func (i IPAM) call(ctx context.Context, delegate func(context.Context, string, []byte, invoke.Exec) error) error {
	if i.Type == "" {
		return nil
	}
	failpoint.Here("before IPAM")
	defer failpoint.Here("after IPAM")
	return i.wrap(delegate(ctx, i.Type, i.Config, nil))
}

func (i IPAM) wrap(err error) error { return Wrap(err, "IPAM plugin "+i.Type) }
