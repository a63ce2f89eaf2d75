package delegate

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
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

// Grant is what a delegate has given. Commit or Undo ends it.
type Grant struct {
	// ipam.Grant is whole for relink-ipam in this process. Of a delegate that is executed it has the Result and the Detection.
	*ipam.Grant
	delegate IPAM
	// kept says that Undo gives nothing up.
	kept bool
}

// Add asks for addresses. repeated says that an earlier ADD of the attachment may hold them: only its DEL gives them up then. After a
// failure the attachment holds nothing but these.
func (i IPAM) Add(ctx context.Context, repeated bool) (*Grant, error) {
	g := &Grant{delegate: i, kept: repeated}
	if err := g.Renew(ctx); err != nil {
		// A delegate that fails may have recorded an address all the same.
		return nil, cniplugin.Join(err, cniplugin.Wrap(g.Undo(ctx), "undo address"))
	}
	return g, nil
}

// Renew asks again: Conflict has exchanged an address. After a failure the grant still has to be undone.
func (g *Grant) Renew(ctx context.Context) (err error) {
	i := g.delegate
	if i.Type == "" {
		g.Grant = &ipam.Grant{Result: &current.Result{}}
		return nil
	}
	failpoint.Here("before IPAM ADD")
	defer failpoint.Here("after IPAM ADD")
	if i.inProcess() {
		g.Grant, err = i.add(ctx)
	} else {
		g.Grant, err = i.executeAdd(ctx)
	}
	if err != nil {
		return i.wrap(err)
	}
	if len(g.Result.IPs) == 0 {
		return cniplugin.Error(types.ErrInternal, "IPAM plugin %s: its result has no address", i.Type)
	}
	return nil
}

// executeAdd runs the delegate as a program of its own. Only relink-ipam can handle a conflict.
func (i IPAM) executeAdd(ctx context.Context) (*ipam.Grant, error) {
	r, err := invoke.DelegateAdd(ctx, i.Type, i.args.StdinData, nil)
	if err != nil {
		return nil, err
	}
	g := &ipam.Grant{}
	if g.Result, err = current.NewResultFromResult(r); err == nil && i.Type == ipam.PluginName {
		g.Detection, err = i.relinkCall.Detection()
	}
	return g, err
}

// add calls relink-ipam. The result is converted to the configuration's version and back, as if it had been
// printed and read.
func (i IPAM) add(ctx context.Context) (*ipam.Grant, error) {
	g, err := i.relinkCall.Add(ctx)
	cniVersion := i.relinkCall.Version()
	if err != nil || cniVersion == current.ImplementedSpecVersion {
		return g, err
	}
	if cniVersion == "" {
		cniVersion = "0.1.0" // Readers of a printed result take a missing version for this one.
	}
	converted, err := g.Result.GetAsVersion(cniVersion)
	if err != nil {
		return nil, err
	}
	g.Result, err = current.NewResultFromResult(converted)
	return g, err
}

// Conflict records that the host with that MAC uses an address of the result. exchanged says whether Renew gives
// another one (see ipam.Call.Conflict).
func (g *Grant) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	exchanged, err = g.delegate.relinkCall.Conflict(ctx, address, mac)
	return exchanged, g.delegate.wrap(err)
}

// Commit is called when the interface plugin has all that it needs for its result, and before it prints that. If it
// fails, the ADD must be undone (see ipam.Grant.Commit).
func (g *Grant) Commit(ctx context.Context) error {
	if !g.delegate.inProcess() {
		return nil // The program has done it.
	}
	return g.delegate.wrap(g.Grant.Commit(ctx))
}

// Undo gives the addresses up, unless an earlier ADD may hold them.
func (g *Grant) Undo(ctx context.Context) error {
	if g.kept {
		return nil
	}
	return g.delegate.Del(ctx)
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

// Owner returns the owner of the pod by the Kubernetes API, nobody if nobody can tell (see ipam.Call.Owner). A plugin
// without a delegate has one, too.
func (i IPAM) Owner(ctx context.Context) attachment.Owner { return i.relinkCall.Owner(ctx) }

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
