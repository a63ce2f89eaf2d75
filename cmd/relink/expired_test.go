package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// No table has an address that a DHCP client of the pod did not renew: the pod does not have it, and no restore brings it back.
func TestTablesLeaveOutWhatHasExpired(t *testing.T) {
	i := netstate.Interface{
		Link: netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:05", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
		Addresses: []netstate.Address{
			{Prefix: netip.MustParsePrefix("10.3.0.2/24")},
			{Prefix: netip.MustParsePrefix("10.9.0.2/24"), ValidUntil: 1, PreferredUntil: 1}, // A second after the boot.
		},
	}
	r := checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, Interface: i}
	for name, write := range map[string]func(s *cli.Screen){
		"list": func(s *cli.Screen) { listTable([]listedAttachment{{Record: r}}, s) },
		"restore": func(s *cli.Screen) {
			restoredOutcomes(restore.Options{Store: checkpoint.OpenStore(t.TempDir())}, restore.Report{Report: change.Report[restore.Outcome]{Outcomes: []restore.Outcome{{Interface: i}}}}).writeTable(s)
		},
		"show": func(s *cli.Screen) { describeAttachment(listedAttachment{Record: r}, s) },
	} {
		for _, format := range []string{cli.FormatTable, cli.FormatWide} {
			var b bytes.Buffer
			write(&cli.Screen{Out: &b, Err: &b, Format: format})
			if out := b.String(); !strings.Contains(out, "10.3.0.2/24") || strings.Contains(out, "10.9.0.2") || strings.Contains(out, "+1") {
				t.Errorf("%s -o %s:\n%s", name, format, out)
			}
		}
	}
}
