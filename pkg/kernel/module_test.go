package kernel

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// If the kernel cannot make devices of a kind, the error says that a module is missing.
func TestAMissingModuleIsNamed(t *testing.T) {
	w := newFixture(t)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE)
	request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("nosuchkind"))
	request.AddData(info)
	err := w.sandbox.socket.Run(rtnl.Message{Request: request, Action: "create it"})
	if !errors.Is(err, unix.EOPNOTSUPP) || err.Error() != "create it: operation not supported: "+missingModule {
		t.Error(err)
	}
}

const missingModule = "Unknown device type: its kernel module is missing: run modprobe macvlan, macvtap, ipvlan, 8021q or bonding"

// This kernel may lack a kind of device. Each way to make such a device makes it, or names the missing module.
func TestCreateNamesTheModuleThatIsMissing(t *testing.T) {
	w := newFixture(t)
	parent := w.index(t, "lan0")
	ipvlan := netstate.Interface{Link: netstate.Link{Kind: netstate.KindIPvlan, Name: "ipvlan0", Index: 77, Up: true, IPvlan: &netstate.IPvlan{Mode: "l2", Flag: "bridge"}}}
	for module, create := range map[string]func() error{
		"8021q": func() error {
			return w.host.CreateVLAN(parent, netstate.Device{Kind: netstate.KindVLAN, Name: "lan0.3", VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}})
		},
		"bonding": func() error {
			return w.host.CreateBond(netstate.Device{Kind: netstate.KindBond, Name: "bond4", Bond: &netstate.Bond{Mode: "active-backup"}}, 0)
		},
		"ipvlan": func() error {
			_, err := Build(w.host, w.sandbox, parent, ipvlan)
			return err
		},
	} {
		err := create()
		if err != nil && !strings.HasSuffix(err.Error(), "operation not supported: "+missingModule) {
			t.Errorf("%s: %v", module, err)
		}
		t.Logf("%s: %v", module, err)
	}
	if there := must(w.host.Exists("bond4"))(t); there {
		if err := w.host.Delete("bond4"); err != nil {
			t.Error(err)
		}
	}
}
