package wire

import (
	"testing"

	"golang.org/x/net/bpf"
)

// This test checks which messages the filter passes, and needs no kernel. The tests of Probe show with real frames that
// the filter passes only frames for this host.
func TestNeighbourFilterPassesNeighbourMessages(t *testing.T) {
	vm, err := bpf.NewVM(NeighbourFilter[len(forThisHost(nil)):])
	if err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		frame  string
		passes bool
	}{
		"advertisement":        {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8800 CHECK 20000000" + otherHost, true},
		"solicitation":         {nsFrom + "0018 3a ff" + nobody + solicitedGroup + "8700 CHECK 00000000" + otherHost, true},
		"router advertisement": {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8600 CHECK 20000000" + otherHost, false},
		"redirect":             {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8900 CHECK 20000000" + otherHost, false},
		"echo request":         {naFrom + "0018 3a ff" + otherHost + allNodesGroup + "8000 CHECK 20000000" + otherHost, false},
		"TCP":                  {naFrom + "0018 06 ff" + otherHost + allNodesGroup + "8800 0000 20000000" + otherHost, false},
		"cut off":              {naFrom + "0018 3a ff" + otherHost, false},
	} {
		if passed, err := vm.Run(checked(t, test.frame)); err != nil || passed > 0 != test.passes {
			t.Errorf("%s: %d bytes pass, %v", what, passed, err)
		}
	}
}

func TestFiltersAssemble(t *testing.T) {
	for what, filter := range map[string][]bpf.Instruction{"ARP": ARPFilter, "neighbour": NeighbourFilter} {
		raw, err := bpf.Assemble(filter)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%s: %v, %v", what, raw, err)
		}
		// SKF_AD_OFF + SKF_AD_PKTTYPE of linux/filter.h, and PACKET_MULTICAST of linux/if_packet.h.
		if raw[0].K != 0xfffff004 || raw[1].K != 2 {
			t.Errorf("%s begins with %+v: it is to look at the packet's type first", what, raw[:2])
		}
	}
}
