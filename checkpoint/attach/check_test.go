package attach_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// list is a network as a runtime runs it: by libcni, with its cache.
type list struct {
	*node
	cni     *libcni.CNIConfig
	network *libcni.NetworkConfigList
	pod     *libcni.RuntimeConf
}

// newList returns a network of these plugins. The keys of one begin with its type. The sandbox has no duplicate address detection:
// without it an ADD takes a second less.
func newList(t *testing.T, plugins ...string) *list {
	t.Helper()
	n := newNode(t)
	text := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", "plugins": [{%s}]}`, strings.Join(plugins, "}, {"))
	network, err := libcni.NetworkConfFromBytes([]byte(strings.NewReplacer("STORE", n.Store.Dir(), "DIR", n.Dir).Replace(text)))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	netns := fresh.Sandbox(t)
	fresh.Run(t, netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad; ip link set lo up")
	cache := filepath.Join(n.Dir, "cache")
	return &list{n, libcni.NewCNIConfigWithCacheDir([]string{testnode.Bin}, cache, nil), network, &libcni.RuntimeConf{
		ContainerID: "c1", NetNS: netns, IfName: "eth0", CacheDir: cache,
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "web-0"}},
	}}
}

func (l *list) add(t *testing.T) {
	t.Helper()
	if _, err := l.cni.AddNetworkList(t.Context(), l.network, l.pod); err != nil {
		t.Fatal("ADD:", err)
	}
}

func (l *list) del(t *testing.T) {
	t.Helper()
	if err := l.cni.DelNetworkList(t.Context(), l.network, l.pod); err != nil {
		t.Error("DEL:", err)
	}
}

// check runs CHECK. An empty text is for no error.
func (l *list) check(t *testing.T, what, want string) {
	t.Helper()
	err := l.cni.CheckNetworkList(t.Context(), l.network, l.pod)
	switch {
	case want == "" && err != nil:
		t.Errorf("CHECK %s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("CHECK %s: %v\nwant %s", what, err, want)
	}
}

const (
	interfaceKeys = `, "master": "lan0", "ipam": {"type": "host-local", "dataDir": "DIR/ipam",
		"ranges": [[{"subnet": "10.9.0.0/16", "gateway": "10.9.0.1"}], [{"subnet": "fd00:9::/64", "gateway": "fd00:9::1"}]],
		"routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.50.0.0/16", "gw": "10.9.0.7"}, {"dst": "::/0"}]}`
	relinkMacvlan    = `"type": "relink-macvlan", "checkpointDir": "STORE"` + interfaceKeys
	stockMacvlan     = `"type": "macvlan"` + interfaceKeys
	relinkCheckpoint = `"type": "relink-checkpoint", "checkpointDir": "STORE"`
)

// CHECK "must allow for a later chained plugin to have modified networking resources" (CNI specification 1.1). Each plugin of the list
// is asked.
func TestCheckAllowsForWhatLaterPluginsDo(t *testing.T) {
	const tuned = `"type": "tuning", "mtu": 1400, "mac": "02:00:00:00:00:77", "txQLen": 5000, "promisc": true, "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "0"}`
	for name, plugins := range map[string][]string{
		"mtu":         {relinkMacvlan, `"type": "tuning", "mtu": 1400`},
		"mac":         {relinkMacvlan, `"type": "tuning", "mac": "02:00:00:00:00:77"`},
		"txQLen":      {relinkMacvlan, `"type": "tuning", "txQLen": 5000`},
		"arp_notify":  {relinkMacvlan, `"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "0"}`},
		"sbr":         {relinkMacvlan, `"type": "sbr"`},
		"sbr, tuning": {relinkMacvlan, `"type": "sbr"`, tuned, relinkCheckpoint},
		// The CHECK of the reference macvlan plugin refuses what sbr does.
		"relink-checkpoint before tuning": {stockMacvlan, relinkCheckpoint, tuned},
	} {
		t.Run(name, func(t *testing.T) {
			l := newList(t, plugins...)
			l.add(t)
			l.check(t, "after ADD", "")
			l.del(t)
		})
	}
}

// eachPlugin runs f for relink's plugins, each in a list of its own. The reference plugin in it has a CHECK of its own, and is not asked.
func eachPlugin(t *testing.T, f func(t *testing.T, l *list)) {
	t.Helper()
	for plugin, plugins := range map[string][]string{"relink-macvlan": {relinkMacvlan}, "relink-checkpoint": {stockMacvlan, relinkCheckpoint}} {
		t.Run(plugin, func(t *testing.T) {
			l := newList(t, plugins...)
			l.add(t)
			l.network.Plugins = l.network.Plugins[len(plugins)-1:]
			fresh.Run(t, "", "set -e; mkdir -p /run/netns; touch /run/netns/checked; mount --bind "+l.pod.NetNS+" /run/netns/checked")
			t.Cleanup(func() { fresh.Run(t, "", "umount /run/netns/checked") })
			f(t, l)
		})
	}
}

// Somebody changes what no result tracks. That is drift, which relink check tells. CHECK passes it: CRI-O would rebuild a pod that works.
func TestCheckPassesDrift(t *testing.T) {
	eachPlugin(t, func(t *testing.T, l *list) {
		for _, s := range []struct{ name, change string }{
			{"MAC", "ip -n checked link set eth0 address 02:00:00:00:00:77"},
			{"queue length", "ip -n checked link set eth0 txqueuelen 77"},
			{"alias and group", "ip -n checked link set eth0 alias pod; ip -n checked link set eth0 group 7"},
			{"setting", "ip netns exec checked sysctl -qw net.ipv4.conf.eth0.arp_notify=0"},
			{"IPv4 route, by a protocol", "ip -n checked route del default; ip -n checked route add default via 10.9.0.1 proto static"},
			{"IPv4 route, by a metric", "ip -n checked route del default; ip -n checked route add default via 10.9.0.1 metric 100"},
			{"IPv6 route, by a protocol", "ip -n checked -6 route del default; ip -n checked -6 route add default via fd00:9::1 proto static"},
			{"route in another table", "ip -n checked route del default; ip -n checked route add default via 10.9.0.1 table 100"},
			{"IPv4 address for a time", "ip -n checked address change 10.9.0.2/16 dev eth0 valid_lft 3600 preferred_lft 1800"},
			{"IPv6 address for a time", "ip -n checked address change fd00:9::2/64 dev eth0 valid_lft 3600 preferred_lft 1800"},
			{"another address and route", "ip -n checked address add 10.9.0.99/16 dev eth0; ip -n checked route add 10.60.0.0/16 via 10.9.0.8"},
			{"queueing discipline", "ip netns exec checked tc qdisc replace dev eth0 root pfifo limit 7"},
			{"MTU", "ip -n checked link set eth0 mtu 1450"},
			{"MTU of the parent", "ip link set lan0 mtu 1400"},
		} {
			fresh.Run(t, "", "set -e\n"+s.change)
			l.check(t, s.name, "")
		}
		l.Says(t, 1, "check", "MTU is 1400, not 1500")
	})
}

// What the result tracks is lost, or the interface is not the plugin's any more.
func TestCheckFailsForWhatIsLost(t *testing.T) {
	eachPlugin(t, func(t *testing.T, l *list) {
		for _, s := range []struct{ name, change, want string }{
			{"IPv4 address", "ip -n checked address del 10.9.0.2/16 dev eth0", "address 10.9.0.2/16 is missing"},
			{"IPv6 address", "ip -n checked address del fd00:9::2/64 dev eth0", "address fd00:9::2/64 is missing"},
			{"prefix length", "ip -n checked address del 10.9.0.2/16 dev eth0; ip -n checked address add 10.9.0.2/24 dev eth0", "address 10.9.0.2/16 is missing"},
			{"IPv4 default route", "ip -n checked route del default", "route 0.0.0.0/0 via 10.9.0.1 is missing"},
			{"IPv6 default route", "ip -n checked -6 route del default", "route ::/0 via fd00:9::1 is missing"},
			{"another gateway", "ip -n checked route replace 10.50.0.0/16 via 10.9.0.8", "route 10.50.0.0/16 via 10.9.0.7 is missing"},
			{"down", "ip -n checked link set eth0 down", "state is down, not up"},
			{"another mode", "ip -n checked link set eth0 type macvlan mode private", "mode is private, not bridge"},
			{"no interface", "ip -n checked link del eth0", "eth0: no such device"},
			{"another kind", "ip -n checked link del eth0; ip -n checked link add eth0 type veth peer name eth9", "eth0 is a veth"},
			{
				"another parent", "ip -n checked link del eth0; ip link add wan0 type veth peer name wan1; ip link add link wan0 name tmp0 type macvlan mode bridge; ip link set tmp0 netns checked name eth0",
				"parent is wan0 (veth), not lan0 (veth)",
			},
		} {
			fresh.Run(t, "", "set -e\n"+s.change)
			l.check(t, s.name, s.want)
			fresh.Run(t, "", "ip -n checked link del eth0 2>/dev/null || true; ip link del wan0 2>/dev/null || true")
			if out, err := l.restore(); err != nil {
				t.Errorf("restore after %s: %v\n%s", s.name, err, out)
			}
			l.check(t, s.name+", restored", "")
		}
	})
}

// lifetimes returns the lifetimes in seconds of an address of the pod, by ip. They are 0 if the pod does not have it.
func (l *list) lifetimes(t *testing.T, address string) (valid, preferred int64) {
	t.Helper()
	var devices []struct {
		Addresses []struct {
			Local     string `json:"local"`
			Valid     int64  `json:"valid_life_time"`
			Preferred int64  `json:"preferred_life_time"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(fresh.IP(t, l.pod.NetNS, "-json addr show dev eth0")), &devices); err != nil {
		t.Fatal(err)
	}
	for _, a := range devices[0].Addresses {
		if a.Local == address {
			return a.Valid, a.Preferred
		}
	}
	return 0, 0
}

// A DHCP client in the pod leases addresses, one of them that of the ADD. A lease is there as long as it lasts, however often
// it is renewed. A restore gives back the rest of it, and nothing of one that has ended.
func TestALeaseInThePod(t *testing.T) {
	eachPlugin(t, func(t *testing.T, l *list) {
		const leases = `set -e
			ip -n checked address change 10.9.0.2/16 dev eth0 valid_lft %[1]d preferred_lft %[2]d
			ip -n checked address replace 10.7.0.7/24 dev eth0 valid_lft %[1]d preferred_lft %[2]d
			ip -n checked address replace fd00:7::7/128 dev eth0 nodad valid_lft %[1]d preferred_lft %[2]d`
		fresh.Run(t, "", fmt.Sprintf(leases, 600, 300))
		l.check(t, "leased", "")
		l.Says(t, 0, "check")
		l.Says(t, 0, "capture --refresh", "1 refreshed")
		fresh.Run(t, "", fmt.Sprintf(leases, 900, 800))
		l.check(t, "renewed", "")
		l.Says(t, 0, "check")
		fresh.Run(t, "", fmt.Sprintf(leases, 550, 250))
		time.Sleep(time.Second)
		l.Says(t, 0, "capture --refresh", "1 refreshed")
		fresh.Run(t, "", "ip -n checked link del eth0")
		if out, err := l.restore(); err != nil {
			t.Errorf("restore: %v\n%s", err, out)
		}
		for _, address := range []string{"10.9.0.2", "10.7.0.7", "fd00:7::7"} {
			if valid, preferred := l.lifetimes(t, address); valid > 549 || valid < 500 || preferred > 249 || preferred < 200 {
				t.Errorf("%s has the lifetimes %d and %d", address, valid, preferred)
			}
		}
		l.check(t, "restored", "")
		l.Says(t, 0, "check")

		fresh.Run(t, "", fmt.Sprintf(leases, 6, 5))
		l.Says(t, 0, "capture --refresh", "1 refreshed")
		for deadline := time.Now().Add(time.Minute); fresh.Run(t, l.pod.NetNS, "ip -o addr show dev eth0 | grep -v forever || true") != ""; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the leases do not end")
			}
		}
		time.Sleep(time.Second) // The kernel tells whole seconds, so a lease can end that much later in the checkpoint.
		l.check(t, "after the end of the leases", "")
		l.Says(t, 0, "check")
		fresh.Run(t, "", "ip -n checked link del eth0")
		if out, err := l.restore(); err != nil {
			t.Errorf("restore after the end of the leases: %v\n%s", err, out)
		}
		for _, address := range []string{"10.9.0.2", "10.7.0.7", "fd00:7::7"} {
			if valid, _ := l.lifetimes(t, address); valid != 0 {
				t.Errorf("%s has come back for %d s", address, valid)
			}
		}
		if valid, _ := l.lifetimes(t, "fd00:9::2"); valid != 1<<32-1 {
			t.Errorf("the permanent address is there for %d s", valid)
		}
		l.check(t, "restored after the end of the leases", "")
		l.Says(t, 0, "check")
	})
}
