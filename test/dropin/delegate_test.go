package dropin

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// way is how an interface plugin gets at relink-ipam, with directories of its own.
type way struct {
	plugin, version, dir string
	master               string
	env                  []string
	namespaces           map[string]string
	results              map[string]string
}

func newWay(t *testing.T, plugin, version, master string, env ...string) *way {
	t.Helper()
	w := &way{plugin, version, t.TempDir(), master, env, map[string]string{}, map[string]string{}}
	for _, id := range []string{"c1", "c2", "c3", "c4"} {
		w.namespaces[id] = fresh.Sandbox(t)
	}
	return w
}

// call is a call for a container, with keys for "ipam" and beside it.
type call struct{ command, id, ipam, beside string }

// said is what the plugin prints and whether it succeeds, without what the two ways
// can't have in common.
func (w *way) said(t *testing.T, c call) string {
	t.Helper()
	if c.command == sandboxEnds {
		testnode.EndSandbox(t, w.namespaces[c.id])
		return ""
	}
	if c.command == "CHECK" && w.results[c.id] != "" {
		c.beside += `, "prevResult": ` + w.results[c.id]
	}
	if w.plugin == "relink-vlan" {
		c.beside += `, "vlanId": 3`
	}
	config := fmt.Sprintf(`{"cniVersion": %q, "name": "pods", "type": %q, "master": %q, "checkpointDir": %q,
		"ipam": {"type": "relink-ipam", "dataDir": %q%s}%s}`, w.version, w.plugin, w.master, filepath.Join(w.dir, "checkpoints"), filepath.Join(w.dir, "ipam"), c.ipam, c.beside)
	env := append([]string{"CNI_COMMAND=" + c.command, "CNI_CONTAINERID=" + c.id, "CNI_IFNAME=eth0", "CNI_NETNS=" + w.namespaces[c.id], "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + c.id}, w.env...)
	output, ok := execute(t, w.plugin, config, env...)
	if c.command == "ADD" && ok {
		w.results[c.id] = string(output)
	}
	said := string(output)
	for id, ns := range w.namespaces {
		said = strings.ReplaceAll(said, ns, "NAMESPACE "+id)
	}
	said = strings.NewReplacer(w.dir, "DIR", w.master, "MASTER").Replace(said)
	return fmt.Sprintf("%v %s", ok, macs.ReplaceAllString(said, "MAC"))
}

var macs = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

const tiny = `, "subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.3", "routes": [{"dst": "10.9.0.0/16"}]`

// sandboxEnds is no command: the container's sandbox ends, and nothing is detached.
const sandboxEnds = "the sandbox ends"

// calls go through all that an IPAM plugin is asked, the errors too.
var calls = []call{
	{"STATUS", "", tiny, ""},
	{"CHECK", "c1", tiny, ""},
	{"ADD", "c1", tiny, ""},
	{"CHECK", "c1", tiny, ""},
	{"ADD", "c2", tiny, `, "args": {"cni": {"ips": ["10.3.0.2"]}}`},
	{"ADD", "c2", tiny, ""},
	{"ADD", "c3", tiny, ""},
	{"STATUS", "", tiny, ""},
	{"STATUS", "", tiny + `, "statusExhausted": true`, ""},
	{"ADD", "c3", `, "subnet": "10.3.0.7/24"`, ""},
	{"ADD", "c3", `, "subnet": 7`, ""},
	{"ADD", "c3", `, "subnet": "10.4.0.0/24"`, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.0/24"}]]}`},
	{"GC", "", tiny, ""},
	{"GC", "", tiny, `, "cni.dev/valid-attachments": [{"containerID": "c1"}]`},
	{"GC", "", tiny, `, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`},
	{"ADD", "c4", tiny, ""}, // c2 lives, and has the last address.
	{sandboxEnds, "c2", "", ""},
	{"GC", "", tiny, `, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`},
	{"ADD", "c4", tiny, ""},
	{"CHECK", "c1", tiny, ""},
	{"CHECK", "c2", tiny, ""},
	{"DEL", "c1", tiny, ""},
	{"DEL", "c1", tiny, ""},
	{"DEL", "c2", `, "subnet": "10.3.0.7/24"`, ""},
	{"DEL", "c3", tiny, ""},
	{"DEL", "c4", tiny, ""},
	{"GC", "", tiny, `, "cni.dev/valid-attachments": null`},
	{"STATUS", "", tiny + `, "statusExhausted": true`, ""},
}

// What comes of relink-ipam is the same whether it is called in the plugin's process or
// executed. A kernel without VLANs refuses relink-vlan's interfaces; in both ways alike.
func TestInProcessIsAsExecuted(t *testing.T) {
	for _, wire := range []string{"wire-a", "wire-b"} {
		fresh.Run(t, "", "ip link add "+wire+" type veth peer name "+wire+"-end; ip link set "+wire+" up; ip link set "+wire+"-end up")
		t.Cleanup(func() { fresh.IP(t, "", "link del "+wire) })
	}
	for i, plugin := range []string{"relink-macvlan", "relink-vlan"} {
		for _, version := range tried(i, versions) {
			t.Run(plugin+"/"+version, func(t *testing.T) {
				inside, outside := newWay(t, plugin, version, "wire-a"), newWay(t, plugin, version, "wire-b", "RELINK_IPAM_EXEC=1")
				var ofC4 []bool
				for i, c := range calls {
					in, out := inside.said(t, c), outside.said(t, c)
					if diff := cmp.Diff(in, out); diff != "" {
						t.Errorf("step %d, %+v (-in process +executed):\n%s", i, c, diff)
					}
					if plugin == "relink-macvlan" && c.command == "ADD" && i < 6 && c.beside == "" && !strings.HasPrefix(in, "true") {
						t.Errorf("step %d, %+v: %s", i, c, in)
					}
					if c.command == "ADD" && c.id == "c4" {
						ofC4 = append(ofC4, strings.HasPrefix(in, "true"))
					}
				}
				// Older versions have no GC.
				if want := []bool{false, version == "1.1.0"}; plugin == "relink-macvlan" && !slices.Equal(ofC4, want) {
					t.Errorf("the ADDs of c4 work: %v, want %v", ofC4, want)
				}
			})
		}
	}
}
