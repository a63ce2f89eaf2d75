package attach_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/agentsocket"
	"github.com/relink-cni/relink/test/fresh"
)

// api stands for the Kubernetes API, behind the socket of an agent. Each pod belongs to the VM of the name in vmOf.
type api struct {
	vmOf map[string]string
	// claims have the addresses of IPAMClaims, by the name of the VM.
	mu     sync.Mutex
	claims map[string][]netip.Prefix
	refuse bool
}

func vmNamed(name string) attachment.Owner {
	return attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "default", Name: name, UID: "uid-of-" + name}
}

func (a *api) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	vm, ok := a.vmOf[q.Pod.Name]
	if !ok {
		return owner.Answer{}, fmt.Errorf("%w: no pod %s", owner.ErrUnavailable, q.Pod)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := owner.Answer{Owner: vmNamed(vm), Persistent: true, SinglePod: true}
	if q.Claims {
		answer.Claim = &owner.Claim{Name: vm, UID: "claim-of-" + vm, IPs: a.claims[vm]}
	}
	return answer, nil
}

func (a *api) Fulfil(_ context.Context, f owner.Fulfilment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse {
		return fmt.Errorf("%w: 10.9.0.77/24", owner.ErrDiffers)
	}
	a.claims[f.Claim.Name] = f.IPs
	return nil
}

func (a *api) Judge(context.Context, []attachment.Owner) []owner.Judgement { return nil }

// serveAPI starts an agent's socket, and returns its path.
func serveAPI(t *testing.T, a *api) string {
	t.Helper()
	return agentsocket.Serve(t, serve.Handler(nil, serve.Sources{Owners: a}, nil))
}

// byOwner is a node whose network keeps addresses by owner.
type byOwner struct {
	*node
	env []string
}

// add calls the plugin for a pod of that name. The container has the name, too.
func (n *byOwner) add(t *testing.T, command, pod, netns, more string) (code int, msg string) {
	t.Helper()
	cmd := n.plugin(command, pod, netns, fmt.Sprintf(`, "allowPersistentIPs": true,
		"ipam": {"type": "relink-ipam", "dataDir": %q, "sticky": "owner", "quarantine": "0s", "subnet": "10.9.0.0/24"}%s`, filepath.Join(n.Dir, "leases"), more))
	cmd.Env = append(cmd.Env, n.env...)
	code, msg, _ = coded(t, cmd)
	return code, msg
}

// A launcher has a new name at each start. Its VM keeps the address, the lease and the checkpoint tell the owner, and the
// IPAMClaim has the address. A failure to write the claim undoes the ADD.
func TestOwnersByTheAgent(t *testing.T) {
	for name, env := range map[string][]string{"in process": nil, "executed": {"RELINK_IPAM_EXEC=1"}} {
		t.Run(name, func(t *testing.T) {
			a := &api{vmOf: map[string]string{"launcher-1": "db", "launcher-2": "db", "launcher-3": "mydb"}, claims: map[string][]netip.Prefix{}}
			n := &byOwner{newNode(t), append(env, control.SocketEnv+"="+serveAPI(t, a))}
			has := func(pod, address, vm string) {
				t.Helper()
				netns := fresh.Sandbox(t)
				if code, msg := n.add(t, "ADD", pod, netns, ""); code != 0 {
					t.Fatalf("ADD of %s: %d: %s", pod, code, msg)
				}
				records := n.Records(t)
				if len(records) != 1 || records[0].Owner != vmNamed(vm) || records[0].Interface.Addresses[0].Prefix.Addr().String() != address {
					t.Errorf("%s: the checkpoint has %s, %v", pod, records[0].Owner, records[0].Interface.Addresses)
				}
				if code, msg := n.add(t, "DEL", pod, netns, ""); code != 0 {
					t.Errorf("DEL of %s: %d: %s", pod, code, msg)
				}
			}
			has("launcher-1", "10.9.0.2", "db")
			has("launcher-3", "10.9.0.3", "mydb")
			has("launcher-2", "10.9.0.2", "db")
			want := map[string][]netip.Prefix{"db": {netip.MustParsePrefix("10.9.0.2/24")}, "mydb": {netip.MustParsePrefix("10.9.0.3/24")}}
			if diff := cmp.Diff(want, a.claims, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}

			a.claims["mydb"] = []netip.Prefix{netip.MustParsePrefix("10.9.0.9/24")} // Somebody moved the VM to another address.
			has("launcher-3", "10.9.0.9", "mydb")

			delete(a.claims, "db")
			a.refuse = true
			netns := fresh.Sandbox(t)
			code, msg := n.add(t, "ADD", "launcher-1", netns, "")
			expectCode(t, "another has written the claim", code, msg, 11, "relink-ipam: IPAMClaim default/db: the IPAMClaim has other addresses: 10.9.0.77/24")
			if env != nil { // The runtime's DEL follows.
				n.add(t, "DEL", "launcher-1", netns, "")
			}
			n.expectNothing(t, netns)
			code, msg = n.add(t, "ADD", "stranger", netns, "")
			expectCode(t, "an unknown pod", code, msg, 11, `"sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: no pod default/stranger`)
			n.expectNothing(t, netns)
		})
	}
}

// Without an agent, a network that keeps by owner asks for another try. All others work.
func TestWithoutAnAgent(t *testing.T) {
	n := &byOwner{newNode(t), []string{control.SocketEnv + "=" + filepath.Join(t.TempDir(), "none")}}
	netns := fresh.Sandbox(t)
	code, msg := n.add(t, "ADD", "web-0", netns, "")
	expectCode(t, "by owner", code, msg, 11, `"sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node`)
	n.expectNothing(t, netns)
	cmd := n.plugin("ADD", "web-0", netns, "")
	cmd.Env = append(cmd.Env, n.env...)
	if code, msg, _ := coded(t, cmd); code != 0 {
		t.Errorf("host-local: %d: %s", code, msg)
	}
	if records := n.Records(t); len(records) != 1 || records[0].Owner != (attachment.Owner{}) {
		t.Errorf("%+v", records)
	}
}

// Whatever the IPAM plugin is, the checkpoint tells the owner.
func TestTheCheckpointTellsTheOwner(t *testing.T) {
	socket := control.SocketEnv + "=" + serveAPI(t, &api{vmOf: map[string]string{"c1": "db"}})
	n := newNode(t)
	cmd := n.plugin("ADD", "c1", fresh.Sandbox(t), "")
	cmd.Env = append(cmd.Env, socket)
	if code, msg, _ := coded(t, cmd); code != 0 {
		t.Fatalf("%d: %s", code, msg)
	}
	if records := n.Records(t); len(records) != 1 || records[0].Owner != vmNamed("db") {
		t.Errorf("%+v", records)
	}
}

// relink-checkpoint knows the owner, too.
func TestTheChainedCheckpointTellsTheOwner(t *testing.T) {
	s := newStock(t)
	s.env = []string{control.SocketEnv + "=" + serveAPI(t, &api{vmOf: map[string]string{"c2": "db"}})}
	s.add(t, "c2", fresh.Sandbox(t))
	if records := s.Records(t); len(records) != 1 || records[0].Owner != vmNamed("db") {
		t.Errorf("%+v", records)
	}
}
