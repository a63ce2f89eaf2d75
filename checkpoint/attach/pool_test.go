package attach_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/agentsocket"
	"github.com/relink-cni/relink/test/fresh"
)

// poolAgent stands for an agent that gives the network "lan" these characters of a block of two pools: 10.9.0.0 to 10.9.0.7, and
// fd00:9:: to fd00:9::7.
type poolAgent struct {
	dir, chars string
	// has are the addresses that the owner has of the pools, which another node still uses.
	has map[string]string
}

func (a *poolAgent) Refill(ctx context.Context, d pool.Demand) error {
	s, err := lease.Open(a.dir, d.Network)
	if err != nil {
		return err
	}
	for name, subnet := range map[string]string{"lan4": "10.9.0.0/29", "lan6": "fd00:9::/125"} {
		p, err := (pool.Pool{Metadata: pool.Meta{Name: name}, Spec: pool.Spec{Subnet: subnet, Ranges: []string{subnet}, BlockSize: 8}}).Layout()
		if err != nil {
			return err
		}
		g := pool.Grant{Pool: name, Block: name, Epoch: 1, First: p.Ranges[0].First, Addresses: a.chars}
		if err := s.PutGrants(ctx, p, []pool.Grant{g}); err != nil {
			return err
		}
	}
	return s.Confirm(ctx)
}

func (a *poolAgent) Acquire(_ context.Context, q pool.Acquisition) (pool.Acquired, error) {
	if a.has[q.Pool] == "" {
		return pool.Acquired{}, nil
	}
	return pool.Acquired{Address: netip.MustParseAddr(a.has[q.Pool]), Migrating: true}, nil
}

func (a *poolAgent) Claim(context.Context, pool.ClaimedAddress) error { return nil }

func (a *poolAgent) Import(context.Context, pool.Import) (pool.Imported, error) {
	return pool.Imported{}, errors.New("not here")
}

// runFromPools calls the plugin for a network of both pools, whose agent this is.
func (l *lan) runFromPools(t *testing.T, a *poolAgent, keys string, env ...string) func(command, id, netns string) (int, string) {
	t.Helper()
	a.dir = filepath.Join(l.Dir, "ipam")
	path := agentsocket.Serve(t, serve.Handler(nil, serve.Sources{Pools: a}, nil))
	return func(command, id, netns string) (int, string) {
		cmd := l.plugin(command, id, netns, fmt.Sprintf(`, "ipam": {"type": "relink-ipam", "pool": ["lan4", "lan6"]%s}`, keys))
		cmd.Env = append(cmd.Env, append(env, control.SocketEnv+"="+path, lease.DirEnv+"="+a.dir)...)
		code, msg, _ := coded(t, cmd)
		return code, msg
	}
}

// addresses are those of the sandbox's interface, without what the kernel has made.
func addresses(t *testing.T, netns string) string {
	t.Helper()
	return fresh.Run(t, netns, "ip -o address show dev eth0 scope global | tr -s ' ' | cut -d ' ' -f 4,9- | tr '\n' ';'")
}

// A pod of a dead node still answers for addresses that this node has got. No pod gets them, although the configuration says
// nothing of conflicts.
func TestADeadNodesAddressesAreProbedFor(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	l.has(t, "10.9.0.2/29")
	l.has(t, "fd00:9::3/64")
	call := l.runFromPools(t, &poolAgent{chars: "..???..."}, "")
	if code, msg := call("ADD", "c1", sandbox); code != 0 {
		t.Fatalf("%d: %s", code, msg)
	}
	if got := addresses(t, sandbox); !strings.HasPrefix(got, "10.9.0.3/29") || !strings.Contains(got, "fd00:9::2/125") {
		t.Error(got)
	}
	expect(t, "leases", l.leases(t), "10.9.0.2 quarantined in use by "+l.mac+"\n10.9.0.3 held\nfd00:9::2 held")
	if code, msg := call("DEL", "c1", sandbox); code != 0 {
		t.Errorf("DEL: %d: %s", code, msg)
	}
}

// A program of its own cannot probe. It gives nothing of a dead node.
func TestAProgramGivesNoDeadNodesAddresses(t *testing.T) {
	l, sandbox := newLAN(t), fresh.Sandbox(t)
	code, msg := l.runFromPools(t, &poolAgent{chars: "..???..."}, "", "RELINK_IPAM_EXEC=1")("ADD", "c1", sandbox)
	expectCode(t, "ADD", code, msg, 11, "this node has 3 that must be probed for, which relink-ipam cannot do as a program of its own")
	l.expectNothing(t, sandbox)
	code, msg = l.runFromPools(t, &poolAgent{chars: "..+++..."}, "", "RELINK_IPAM_EXEC=1")("ADD", "c1", sandbox)
	if got := addresses(t, sandbox); code != 0 || !strings.HasPrefix(got, "10.9.0.2/29") || !strings.Contains(got, "fd00:9::2/125") {
		t.Errorf("proven ones: %d: %s %s", code, msg, got)
	}
}

// The neighbour knows where the address is. An ADD tells it that the address is at the pod now, but not if a virtual machine moves: it
// is still running on the other node. It answers there for both addresses.
func TestAVirtualMachineThatMovesIsNotAnnounced(t *testing.T) {
	for name, test := range map[string]struct {
		chars string // While it moves, another node has the address.
		has   map[string]string
		told  bool
	}{
		"moves":  {"...++...", map[string]string{"lan4": "10.9.0.2", "lan6": "fd00:9::2"}, false},
		"starts": {"..+++...", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, sandbox := newLAN(t), fresh.Sandbox(t)
			l.has(t, "10.9.0.6/29")
			if !test.told {
				l.has(t, "fd00:9::2/64") // The kernel's own search for duplicates would find it.
			}
			const source = "02:00:00:00:0b:0b"
			fresh.Run(t, l.neighbour, "echo 0 > /proc/sys/net/ipv4/neigh/eth0/locktime")
			fresh.IP(t, l.neighbour, "neigh replace 10.9.0.2 lladdr "+source+" nud stale dev eth0")
			call := l.runFromPools(t, &poolAgent{chars: test.chars, has: test.has}, `, "sticky": "pod", "conflictDetection": {"probes": 1, "wait": "50ms"}`)
			if code, msg := call("ADD", "c1", sandbox); code != 0 {
				t.Fatalf("%d: %s", code, msg)
			}
			told := func() bool {
				return !strings.Contains(fresh.IP(t, l.neighbour, "neigh show 10.9.0.2 dev eth0"), source)
			}
			for deadline := time.Now().Add(2 * time.Second); !told() && time.Now().Before(deadline); {
				time.Sleep(20 * time.Millisecond)
			}
			if told() != test.told {
				t.Errorf("the neighbour was told: %v", told())
			}
			got := addresses(t, sandbox)
			if !strings.HasPrefix(got, "10.9.0.2/29") || !strings.Contains(got, "fd00:9::2/125") || strings.Contains(got, "dadfailed") || !test.told && strings.Contains(got, "tentative") {
				t.Error(got)
			}
			if record := l.Records(t)[0]; record.Interface.Settings["ipv4/arp_notify"] != "1" {
				t.Errorf("the checkpoint has %v: later announcements are wanted", record.Interface.Settings)
			}
		})
	}
}
