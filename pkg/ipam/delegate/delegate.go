package delegate

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam"
)

// ExecEnv has relink-ipam executed, if it is not empty, like any other plugin. What
// comes of it is the same.
const ExecEnv = "RELINK_IPAM_EXEC"

// Plugins are the names that a misspelt "ipam.type" is likely to mean.
var Plugins = []string{ipam.PluginName, "host-local", "static", "dhcp", "whereabouts"}

// IPAM is the delegate that a configuration names in "ipam.type". A plugin
// without one makes interfaces without addresses: all methods do nothing then.
type IPAM struct {
	// Type is the delegate's name, found in CNI_PATH unless it is relink's own. It is empty for
	// none.
	Type string
	args *skel.CmdArgs
	// own is the call of relink-ipam, whether it is made in this process or not.
	own *ipam.Call
}

// New returns the delegate of a configuration that the calling plugin has decoded. args are
// those of the calling plugin.
func New(args *skel.CmdArgs, config cniplugin.Network) IPAM {
	return IPAM{Type: config.IPAM.Type, args: args, own: ipam.New(args, config)}
}

// inProcess says whether the delegate is called without a process of its own: a pod's
// start would pay for that.
func (i IPAM) inProcess() bool { return i.Type == ipam.PluginName && os.Getenv(ExecEnv) == "" }

// Add asks for addresses. The caller has seen by Find that there is somebody to ask.
func (i IPAM) Add(ctx context.Context) (*current.Result, error) {
	if i.Type == "" {
		return &current.Result{}, nil
	}
	failpoint.Here("before IPAM ADD")
	defer failpoint.Here("after IPAM ADD")
	if i.inProcess() {
		result, err := i.add(ctx)
		return result, i.wrap(err)
	}
	r, err := invoke.DelegateAdd(ctx, i.Type, i.args.StdinData, nil)
	if err != nil {
		return nil, i.wrap(err)
	}
	result, err := current.NewResultFromResult(r)
	return result, i.wrap(err)
}

// add calls relink-ipam. Its result goes through the configuration's version, as one
// that is printed and read again does.
func (i IPAM) add(ctx context.Context) (*current.Result, error) {
	result, err := i.own.Add(ctx)
	cniVersion := i.own.Version()
	if err != nil || cniVersion == current.ImplementedSpecVersion {
		return result, err
	}
	if cniVersion == "" {
		cniVersion = "0.1.0" // As types.PrintResult's readers take it.
	}
	of, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(of)
}

// Find says whether the delegate is there and, for relink's own, whether an ADD can read its
// configuration.
func (i IPAM) Find() error {
	if i.Type == ipam.PluginName {
		if err := i.own.Read(); err != nil {
			return i.wrap(err)
		}
	}
	if i.Type == "" || i.inProcess() {
		return nil
	}
	path := os.Getenv("CNI_PATH")
	if _, err := invoke.FindInPath(i.Type, filepath.SplitList(path)); err == nil {
		return nil
	}
	must := "must be a plugin in the runtime's directories, " + path
	if near := cniplugin.Nearest(i.Type, Plugins...); near != "" {
		must += fmt.Sprintf("; did you mean %q?", near)
	}
	return cniplugin.ConfigError("ipam.type", i.Type, must)
}

// Detection says how to probe for the addresses before they are used, nil for not at
// all. Only relink-ipam can be told of a conflict.
func (i IPAM) Detection() (*ipam.Detection, error) {
	if i.Type != ipam.PluginName {
		return nil, nil
	}
	return i.own.Detection()
}

// Conflict says that the host with that MAC has the address which Add returned, and
// returns whether Add gives another one now (see ipam.Call.Conflict).
func (i IPAM) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	exchanged, err = i.own.Conflict(ctx, address, mac)
	return exchanged, i.wrap(err)
}

// Settled says that the ADD of the interface plugin has succeeded. Only relink-ipam in this process
// is told: what is gone of the sandboxes before holds nothing any more then.
func (i IPAM) Settled(ctx context.Context) error {
	if !i.inProcess() {
		return nil
	}
	return i.wrap(i.own.Settled(ctx))
}

// Del gives the addresses back.
func (i IPAM) Del(ctx context.Context) error {
	return i.call(ctx, (*ipam.Call).Del, invoke.DelegateDel)
}

// Check asks whether the addresses are still held.
func (i IPAM) Check(ctx context.Context) error {
	return i.call(ctx, (*ipam.Call).Check, invoke.DelegateCheck)
}

// Status asks whether addresses can be given.
func (i IPAM) Status(ctx context.Context) error {
	return i.call(ctx, (*ipam.Call).Status, invoke.DelegateStatus)
}

// GC passes the list of valid attachments on.
func (i IPAM) GC(ctx context.Context) error {
	return i.call(ctx, (*ipam.Call).GC, invoke.DelegateGC)
}

func (i IPAM) call(
	ctx context.Context, own func(*ipam.Call, context.Context) error, execute func(context.Context, string, []byte, invoke.Exec) error,
) error {
	if i.Type == "" {
		return nil
	}
	failpoint.Here("before IPAM")
	defer failpoint.Here("after IPAM")
	if i.inProcess() {
		return i.wrap(own(i.own, ctx))
	}
	return i.wrap(execute(ctx, i.Type, i.args.StdinData, nil))
}

func (i IPAM) wrap(err error) error { return cniplugin.Wrap(err, "IPAM plugin "+i.Type) }
