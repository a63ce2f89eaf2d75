package netfix

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// FuzzParse shows that no file makes Parse panic, and that each error is one line that is safe to print. An accepted
// file can be remembered and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(written))
	for _, pair := range [][2]string{
		{`"cniVersion":"0.4.0",`, ``}, {`"0.4.0"`, `"0.2.0"`}, {`"0.4.0"`, `"0.3.1"`}, {`"0.4.0"`, `"1.1.0"`},
		{`"netns":"/proc/1234/ns/net"`, `"netns":"/var/run/docker/netns/1a2b3c4d5e6f"`},
		{`"web-0"`, `"k8s_POD_web-0_shop_4a0f2f0e-6f3e-4a68-a4c4-0d4f1d3f3a11_0"`}, {`"web-0"`, `"shop/web-0"`},
		{`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0","gw":"10.3.0.1"},{"dst":"10.0.0.0/8","gw":"10.3.0.2"}`},
		{`"gateway":"10.3.0.1"}`, `"gateway":"10.3.0.1"},{"version":"6","interface":0,"address":"fd00:3::5/64","gateway":"fd00:3::1"}`},
		{`{"dst":"0.0.0.0/0"}`, `{"dst":"::/0","mtu":1400,"advmss":1360,"priority":10,"table":100,"scope":253}`},
		{`"dns":{}`, `"dns":{"nameservers":["10.3.0.1"],"search":["svc.cluster.local"]}`},
	} {
		f.Add([]byte(edit(f, pair[0], pair[1])))
	}
	f.Add([]byte(`{"netns":"/proc/1/ns/net","podname":"p","sandbox":"c","ifname":"eth0","result":{"ip4":{"ip":"10.3.0.5/24","gateway":"10.3.0.1"}}}`))
	parents := []netstate.Device{{Kind: netstate.KindNIC, Name: "eth0", MTU: 1500}}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse(b)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%q is not one line", err)
			}
			return
		}
		r := checkpoint.Record{
			Attachment: attachment.Key{Network: "unknown", ContainerID: file.ContainerID, IfName: file.IfName}, Pod: file.Pod(),
			Namespace: attachment.Namespace{Path: file.Netns, BootID: "b", Device: 4, Inode: 5}, Interface: file.Interface(parents, 1500),
			CNI: checkpoint.CNI{Config: []byte(`{}`), Result: file.Result}, Writer: "relink import", CapturedAt: time.Now().UTC().Truncate(time.Millisecond),
		}
		encoded, err := checkpoint.Encode(r)
		if err != nil {
			t.Fatalf("accepted, but can't be remembered: %v", err)
		}
		decoded, err := checkpoint.Decode(encoded)
		if err != nil {
			t.Fatalf("accepted, but can't be read again: %v", err)
		}
		if diff := cmp.Diff(r.Interface, decoded.Interface, comparable); diff != "" {
			t.Error(diff)
		}
	})
}
