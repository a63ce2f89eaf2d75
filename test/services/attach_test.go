package services

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// reached is the key "extra" of the pods.
var reached = []string{dnsAddress.v4, dnsAddress.v6}

// pod attaches a pod to the VLAN, with hostAccess, as a runtime does.
func (s *topology) pod(t *testing.T, name string, last int, k Keys) *pod {
	t.Helper()
	p := &pod{name: name, ns: s.namespace(t, name), address: podAddress(last)}
	fresh.Run(t, p.ns, "sysctl -qw net.ipv6.conf.default.accept_dad=0") // An ADD waits for a second otherwise.
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + node.Bin, "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + name, "CNI_NETNS=" + p.ns, "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + name + ";IP=" + p.v4 + "," + p.v6,
	}
	cmd.Stdin = strings.NewReader(s.network(t, k))
	s.runs(t, cmd)
	return p
}

// network is the configuration of the VLAN for pods with the keys.
func (s *topology) network(t *testing.T, k Keys) string {
	t.Helper()
	config, err := json.Marshal(m{
		"cniVersion": "1.1.0", "name": "vlan3", "type": "relink-macvlan", "master": "vlan0", "checkpointDir": s.checkpoints,
		"hostAccess": m{
			"services": strings.Split(serviceCIDRs, ","), "extra": reached, "preserveSource": k.PreserveSource, "masquerade": k.Masquerade,
		},
		"ipam": m{
			"type": "relink-ipam", "dataDir": filepath.Join(s.dir, "ipam"),
			"ranges": [][]m{{{"subnet": "10.3.0.0/24", "gateway": "10.3.0.1"}}, {{"subnet": "fd00:3::/64", "gateway": "fd00:3::1"}}},
			"routes": []m{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// runs runs a program on the node. The plugin and relink take the namespace that they start in for the host's.
func (s *topology) runs(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out []byte
	var err error
	if in := fresh.In(s.node, func() { out, err = cmd.CombinedOutput() }); in != nil || err != nil {
		t.Errorf("%s: %v %v\n%s", strings.Join(cmd.Args, " "), in, err, out)
	}
}

func (s *topology) relink(t *testing.T, args ...string) {
	t.Helper()
	s.runs(t, exec.Command(filepath.Join(node.Bin, "relink"), append([]string{"--checkpoint-dir", s.checkpoints}, args...)...))
}

// follow does what the agent does when addresses of the node change. It also undoes what differs in the pods.
func (s *topology) follow(t *testing.T) {
	t.Helper()
	s.relink(t, "restore", "--wait", "5s")
}

// reach changes the key "extra" of all pods.
func (s *topology) reach(t *testing.T, extra []string) {
	t.Helper()
	s.relink(t, "host-access", "remove", "--namespace", "default")
	for i, k := range Settings {
		s.relink(t, "host-access", "add", s.clients[i].name, s.backends[i].name, "--services", serviceCIDRs, "--extra", strings.Join(extra, ","),
			fmt.Sprintf("--preserve-source=%t", k.PreserveSource), fmt.Sprintf("--masquerade=%t", k.Masquerade))
	}
}
