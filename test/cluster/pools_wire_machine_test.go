package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/fresh"
)

// vmPod is a virtual machine's pod behind a bridge of the node. The namespace stands for the guest: its kernel has the address, and
// the guest has one MAC on all nodes.
type vmPod struct {
	*vlanPod
	call *ipam.Call
	// given is what the guest has.
	given *ipam.Grant
}

// bridge makes a bridge of the node's device at the switch. A node with it has no macvlans.
func (v *vlan) bridge(n *vlanNode) {
	v.Helper()
	fresh.Run(v.T, n.ns, "ip link add vms up type bridge mcast_snooping 0; ip link set vlan0 master vms")
}

// machine makes a machine's pod on the node, and gets its addresses. The guest does not run so far.
// from are the UIDs of the pods from which the machine can migrate.
func (v *vlan) machine(n *vlanNode, name, mac, keys string, from ...string) (*vmPod, error) {
	v.Helper()
	p := v.pod(n, name)
	p.mac = mac
	host := "vm" + p.id
	fresh.Run(v.T, n.ns, fmt.Sprintf("ip link add %[1]s type veth peer name guest%[1]s address %[2]s; ip link set %[1]s up master vms", host, mac))
	fresh.Run(v.T, n.ns, fmt.Sprintf("exec 9<%s; ip link set guest%s netns /proc/self/fd/9 name eth0", p.ns, host))
	m, err := v.machineCall(p, name, keys, from)
	if err == nil {
		m.given, err = m.call.Add(v.Context())
	}
	if err == nil {
		err = m.given.Commit(v.Context())
	}
	if err != nil {
		return m, errors.Join(err, v.endMachine(m))
	}
	v.told(p, m.given.Result)
	return m, nil
}

// machineCall prepares a call of relink-ipam in this process.
func (v *vlan) machineCall(p *vlanPod, name, keys string, from []string) (*vmPod, error) {
	v.Helper()
	v.Setenv(lease.DirEnv, p.on.dir)
	config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", "type": "bridge", "ipam": {"type": "relink-ipam", "pool": ["lan", "lan6"], %s}}`, keys)
	var n cniplugin.Network
	if err := cniplugin.Decode([]byte(config), &n); err != nil {
		return nil, err
	}
	args := &skel.CmdArgs{ContainerID: p.id, Netns: p.ns, IfName: "eth0", Args: argsOf(p, name), StdinData: []byte(config)}
	return &vmPod{vlanPod: p, call: ipam.New(args, n, machineOwners{control.Client{Path: p.on.socket}, from})}, nil
}

// mustMachine is machine that succeeds within some tries, as a runtime makes them.
func (v *vlan) mustMachine(n *vlanNode, name, mac, keys string, from ...string) *vmPod {
	v.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		m, err := v.machine(n, name, mac, keys, from...)
		if err == nil {
			return m
		}
		if !isTryAgain(err) || time.Now().After(deadline) {
			v.Fatalf("%s does not start on %s: %v\n%s", name, n.name, err, n.log.String())
		}
	}
}

// run lets the guest run: from now on it answers.
func (v *vlan) run(m *vmPod) {
	v.Helper()
	for _, ip := range m.given.Result.IPs {
		fresh.IP(v.T, m.ns, "address add "+ip.Address.String()+" dev eth0 nodad")
	}
	fresh.IP(v.T, m.ns, "link set eth0 up")
}

// pause stops the guest: from now on it may run on another node.
func (v *vlan) pause(m *vmPod) {
	v.Helper()
	v.ends(m.vlanPod)
	fresh.IP(v.T, m.ns, "link set eth0 down")
}

// endMachine ends the pod.
func (v *vlan) endMachine(m *vmPod) error {
	v.Helper()
	v.Setenv(lease.DirEnv, m.on.dir)
	v.ends(m.vlanPod)
	fresh.Remove(v.T, m.ns)
	return m.call.Del(v.Context())
}

// machineOwners answers for the pods of one machine, as Owners does by the Kubernetes API: TestAgent shows that.
type machineOwners struct {
	control.Client
	siblings []string
}

func (o machineOwners) Ask(context.Context, owner.Question) (owner.Answer, error) {
	of := launcher("db", "")
	return owner.Answer{Owner: of.Owner, Persistent: true, SinglePod: true, Siblings: o.siblings}, nil
}

// A machine migrates to another node with its address and its MAC. The listener hears it at one port at a time. A pod that starts the
// machine anew waits for the end of the one before.
func (a *api) machineMoves(t *testing.T, users map[string]user) {
	const mac, keys = "02:0b:00:00:00:01", `"sticky": "owner"`
	v := a.vlan(t, users, 56, 8)
	source, target := v.nodes[0], v.nodes[1]
	v.bridge(source)
	v.bridge(target)
	first := v.mustMachine(source, "virt-launcher-db-1", mac, keys)
	v.run(first)
	v.hears(first.vlanPod)
	want := "node node1 has " + first.addresses[0].String() + " of the pool lan, and has not handed it over"
	await(t, 30*time.Second, "the refusal that says "+want, func() bool { // On a busy machine, the first ones only say that the time was not enough.
		_, err := v.machine(target, "virt-launcher-db-2", mac, keys)
		if !isTryAgain(err) {
			t.Fatalf("a machine that is started anew: %v, want code 11: %s", err, want)
		}
		return strings.Contains(err.Error(), want)
	})
	second := v.mustMachine(target, "virt-launcher-db-3", mac, keys, "uid-"+first.id)
	if !slices.Equal(second.addresses, first.addresses) || !second.given.Migrating {
		t.Fatalf("the target has %v, want %v, and not to be announced", second.addresses, first.addresses)
	}
	time.Sleep(2 * askEvery)
	v.pause(first)
	v.run(second)
	v.hears(second.vlanPod)
	if err := v.endMachine(first); err != nil {
		t.Fatal(err)
	}
	for _, address := range first.addresses {
		await(t, 30*time.Second, "the target's node to have "+address.String(), func() bool { return a.holderNow(t, users, address) == "node2" })
	}
	v.hears(second.vlanPod)
	v.unconfused()
}
