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

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/owner"
)

// ExecEnv is an environment variable. If it is not empty, relink-ipam runs as a program of its own, like any other
// plugin. The results are the same.
const ExecEnv = "RELINK_IPAM_EXEC"

// IPAM is the delegate that a configuration names in "ipam.type". A plugin without a delegate makes interfaces without
// addresses: then all methods do nothing.
type IPAM struct {
	// Type is the delegate's name, or empty for none. CNI_PATH says where to find its program. relink's own delegate
	// needs no program.
	Type string
	args *skel.CmdArgs
	// relinkCall is the call of relink-ipam. It is also set if relink-ipam runs as a program.
	relinkCall *ipam.Call
}

// New returns the delegate of a configuration. args are the arguments of the calling plugin, and config is its decoded
// configuration. An ADD of relink's own delegate asks owners about the pod.
func New(args *skel.CmdArgs, config cniplugin.Network, owners owner.Asker) IPAM {
	return IPAM{Type: config.IPAM.Type, args: args, relinkCall: ipam.New(args, config, owners)}
}

// inProcess reports whether the delegate runs in this process. A process of its own would slow down each start of a
// pod.
func (i IPAM) inProcess() bool { return i.Type == ipam.PluginName && os.Getenv(ExecEnv) == "" }

// Add asks for addresses. The caller calls Find first.
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

// add calls relink-ipam. The result is converted to the configuration's version and back, as if it had been
// printed and read.
func (i IPAM) add(ctx context.Context) (*current.Result, error) {
	result, err := i.relinkCall.Add(ctx)
	cniVersion := i.relinkCall.Version()
	if err != nil || cniVersion == current.ImplementedSpecVersion {
		return result, err
	}
	if cniVersion == "" {
		cniVersion = "0.1.0" // Readers of a printed result take a missing version for this one.
	}
	converted, err := result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(converted)
}

// Find reports a delegate that does not exist. For relink's own delegate, it reports what an ADD would refuse in the
// configuration.
func (i IPAM) Find() error {
	if i.Type == ipam.PluginName {
		if err := i.relinkCall.Read(); err != nil {
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
	requirement := "must be a plugin in the runtime's directories, " + path
	if near := cniplugin.Nearest(i.Type, ipam.Plugins...); near != "" {
		requirement += fmt.Sprintf("; did you mean %q?", near)
	}
	return cniplugin.ConfigError("ipam.type", i.Type, requirement)
}

// Detection says how to probe for the addresses before they are used. nil means not at all. Only relink-ipam can handle
// a conflict.
func (i IPAM) Detection() (*ipam.Detection, error) {
	if i.Type != ipam.PluginName {
		return nil, nil
	}
	return i.relinkCall.Detection()
}

// Migrating says that a pod on another node still uses an address that Add has returned (see ipam.Call.Migrating).
func (i IPAM) Migrating() bool { return i.inProcess() && i.relinkCall.Migrating() }

// Conflict records that the host with that MAC uses an address that Add returned. exchanged says whether Add now gives
// another one (see ipam.Call.Conflict).
func (i IPAM) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	exchanged, err = i.relinkCall.Conflict(ctx, address, mac)
	return exchanged, i.wrap(err)
}

// Owner returns the owner of the pod by the Kubernetes API, nobody if nobody can tell (see ipam.Call.Owner). A plugin
// without a delegate has one, too.
func (i IPAM) Owner(ctx context.Context) attachment.Owner { return i.relinkCall.Owner(ctx) }

// Confirm is called when the interface plugin has all that it needs for its result, and before it prints that. If it
// fails, the ADD must be undone (see ipam.Call.Confirm).
func (i IPAM) Confirm(ctx context.Context, result *current.Result) error {
	if !i.inProcess() {
		return nil // The program has done it.
	}
	return i.wrap(i.relinkCall.Confirm(ctx, result))
}

// ReleasePrevious is called after the ADD of the interface plugin has succeeded. Only relink-ipam in this process learns of it.
// Earlier sandboxes of the owner that are proven gone then hold nothing any more.
func (i IPAM) ReleasePrevious(ctx context.Context) error {
	if !i.inProcess() {
		return nil
	}
	return i.wrap(i.relinkCall.ReleasePrevious(ctx))
}

// Del gives up the addresses.
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

// GC passes on the list of valid attachments.
func (i IPAM) GC(ctx context.Context) error {
	return i.call(ctx, (*ipam.Call).GC, invoke.DelegateGC)
}

func (i IPAM) call(
	ctx context.Context, run func(*ipam.Call, context.Context) error, execute func(context.Context, string, []byte, invoke.Exec) error,
) error {
	if i.Type == "" {
		return nil
	}
	failpoint.Here("before IPAM")
	defer failpoint.Here("after IPAM")
	if i.inProcess() {
		return i.wrap(run(i.relinkCall, ctx))
	}
	return i.wrap(execute(ctx, i.Type, i.args.StdinData, nil))
}

func (i IPAM) wrap(err error) error { return cniplugin.Wrap(err, "IPAM plugin "+i.Type) }
