package kube

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestStaticOf(t *testing.T) {
	for name, test := range map[string]struct {
		annotations     map[string]string
		network, ifName string
		key             string
		want            []netip.Addr
	}{
		"none":                        {nil, "lan", "eth0", "", nil},
		"of others":                   {map[string]string{"ipam.relink.dev/lan2": "10.0.0.1", "ipam.relink.dev/la": "10.0.0.1", "lan": "10.0.0.1"}, "lan", "eth0", "", nil},
		"of the network":              {map[string]string{"ipam.relink.dev/lan": "10.0.0.1"}, "lan", "eth0", "ipam.relink.dev/lan", addrs("10.0.0.1")},
		"of the interface":            {map[string]string{"ipam.relink.dev/lan": "10.0.0.1", "ipam.relink.dev/lan.net1": "10.0.0.2"}, "lan", "net1", "ipam.relink.dev/lan.net1", addrs("10.0.0.2")},
		"of another interface":        {map[string]string{"ipam.relink.dev/lan": "10.0.0.1", "ipam.relink.dev/lan.net1": "10.0.0.2"}, "lan", "net2", "ipam.relink.dev/lan", addrs("10.0.0.1")},
		"both families, with spaces":  {map[string]string{"ipam.relink.dev/lan": " 10.0.0.1 , fd00::1,10.0.0.2"}, "lan", "eth0", "ipam.relink.dev/lan", addrs("10.0.0.1", "fd00::1", "10.0.0.2")},
		"with prefix lengths":         {map[string]string{"ipam.relink.dev/lan": "10.0.0.1/24,fd00::1/64"}, "lan", "eth0", "ipam.relink.dev/lan", addrs("10.0.0.1", "fd00::1")},
		"a network with dots":         {map[string]string{"ipam.relink.dev/lan.net1": "10.0.0.1"}, "lan.net1", "eth0", "ipam.relink.dev/lan.net1", addrs("10.0.0.1")},
		"one key for two":             {map[string]string{"ipam.relink.dev/lan.net1": "10.0.0.1"}, "lan", "net1", "ipam.relink.dev/lan.net1", addrs("10.0.0.1")},
		"dots in both":                {map[string]string{"ipam.relink.dev/a.b.c": "10.0.0.1"}, "a", "b.c", "ipam.relink.dev/a.b.c", addrs("10.0.0.1")},
		"dots in both, the other way": {map[string]string{"ipam.relink.dev/a.b.c": "10.0.0.1"}, "a.b", "c", "ipam.relink.dev/a.b.c", addrs("10.0.0.1")},
		"the key of the owner":        {map[string]string{"ipam.relink.dev/owner": "deployment.apps/web"}, "owner", "eth0", "", nil},
		"the network owner can have":  {map[string]string{"ipam.relink.dev/owner": "deployment.apps/web", "ipam.relink.dev/owner.eth0": "10.0.0.1"}, "owner", "eth0", "ipam.relink.dev/owner.eth0", addrs("10.0.0.1")},
		"the other one is not read":   {map[string]string{"ipam.relink.dev/lan.eth0": "10.0.0.1", "ipam.relink.dev/lan": "nonsense"}, "lan", "eth0", "ipam.relink.dev/lan.eth0", addrs("10.0.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := staticOf(test.annotations, test.network, test.ifName)
			switch {
			case err != nil:
				t.Fatal(err)
			case test.key == "" && got != nil, test.key != "" && (got == nil || got.Key != test.key || !slices.Equal(got.Addresses, test.want)):
				t.Errorf("%+v, want %s %v", got, test.key, test.want)
			}
		})
	}
}

func TestWrongAddresses(t *testing.T) {
	for value, want := range map[string]string{
		"":                    `"" is no address`,
		"10.0.0":              `"10.0.0" is no address`,
		"10.0.0.1,":           `"" is no address`,
		"10.0.0.1;10.0.0.2":   `"10.0.0.1;10.0.0.2" is no address`,
		"10.0.0.1/33":         `"10.0.0.1/33" is no address`,
		"10.0.0.1,10.0.0.1":   "10.0.0.1 is there twice",
		"10.0.0.1,10.0.0.1/8": "10.0.0.1 is there twice",
		"fd00::1,fd00:0::1":   "fd00::1 is there twice",
		"fe80::1%eth0":        `"fe80::1%eth0" is no address as Kubernetes writes it`,
		"::ffff:10.0.0.1":     `"::ffff:10.0.0.1" is no address as Kubernetes writes it`,
	} {
		_, err := staticOf(map[string]string{"ipam.relink.dev/lan": value}, "lan", "eth0")
		if !errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "annotation ipam.relink.dev/lan=") || !strings.Contains(err.Error(), "Write addresses") {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

func TestPositionIn(t *testing.T) {
	for name, test := range map[string]struct {
		uid     string
		ordinal int
		spec    string
		want    int
		err     string
	}{
		"the first":          {"u", 0, `{"replicas":1}`, 0, ""},
		"from a start on":    {"u", 7, `{"replicas":3,"ordinals":{"start":5}}`, 2, ""},
		"reserved before it": {"u", 7, `{"replicas":3,"reserveOrdinals":[1,"3-5",9]}`, 3, ""},
		"beyond the end":     {"u", 7, `{"replicas":3}`, 7, ""},
		"before the start":   {"u", 4, `{"replicas":3,"ordinals":{"start":5}}`, 0, "its ordinals begin with 5"},
		"reserved":           {"u", 4, `{"replicas":3,"reserveOrdinals":[4]}`, 0, "its reserveOrdinals leave out ordinal 4"},
		"nobody knows":       {"u", 4, `{}`, 0, "its spec has no replicas"},
		"another set":        {"v", 0, `{"replicas":1}`, 0, "it was made anew: its UID is v, and was u"},
	} {
		var set objects.Object
		set.Metadata.UID, set.Spec = types.UID(test.uid), json.RawMessage(test.spec)
		switch got, err := positionIn(set, "u", test.ordinal); {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: %v, want %q", name, err, test.err)
			}
		case err != nil, got != test.want:
			t.Errorf("%s: %v, %v, want %d", name, got, err, test.want)
		}
	}
}
