package kernel_test

import (
	"fmt"
	"log"
	"net/netip"
	"os/exec"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// An interface is built from a description, captured, lost, and built again. This example uses the host's namespace. A
// pod's namespace is opened by its path.
func Example() {
	if err := exec.Command("ip", "link", "add", "lan0", "up", "type", "veth", "peer", "name", "lan1").Run(); err != nil {
		log.Fatal(err)
	}
	host, err := kernel.OpenHost()
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	parent, err := host.Index("lan0")
	if err != nil {
		log.Fatal(err)
	}
	want := netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:01", Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("10.3.0.2/24")}},
	}
	if _, err := kernel.Build(host, host, parent, want); err != nil {
		log.Fatal(err)
	}
	devices, err := host.Devices()
	if err != nil {
		log.Fatal(err)
	}
	recorded, err := kernel.Capture(host, host, devices, "eth0", kernel.CheckpointExtent)
	if err != nil {
		log.Fatal(err)
	}
	if err := host.Delete("eth0"); err != nil {
		log.Fatal(err)
	}
	// It comes back with its index, too.
	if _, err := kernel.Build(host, host, parent, recorded); err != nil {
		log.Fatal(err)
	}
	again, err := kernel.Capture(host, host, devices, "eth0", kernel.CheckpointExtent)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(again.Link.Name, again.Link.MAC, again.Addresses)
	fmt.Println("differences:", len(netstate.Diff(recorded, again)))
	if err := host.Delete("lan0"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// eth0 02:00:00:00:00:01 [10.3.0.2/24]
	// differences: 0
}
