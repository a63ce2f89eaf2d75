package kube

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// addressList are n addresses in their longest form.
func addressList(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 6: 0xff, 7: 0xff, 8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff, 12: 0xff, 13: 0xff, 14: 0xf0 | byte(i>>8), 15: byte(i)}), 128).String()
	}
	return strings.Join(all, ", ")
}

// networkList is the annotation for Multus with n networks and so many bytes. The last network has a claim for eth0.
func networkList(n, bytes int) string {
	const last = `{"interface":"eth0","ipam-claim-reference":"db.lan"}]`
	each := (bytes - len(last) - 1) / max(n-1, 1)
	const rest = `{"x":""},`
	list := "[" + strings.Repeat(`{"x":"`+strings.Repeat("x", max(each-len(rest), 0))+`"},`, n-1)
	return list + strings.Repeat(" ", max(bytes-len(list)-len(last), 0)) + last
}

// What is allowed is read, and one byte more is not.
func TestTheLongestAnnotations(t *testing.T) {
	const key = "ipam.relink.dev/lan"
	static := func(value string) error {
		got, err := staticOf(map[string]string{key: value}, "lan", "eth0")
		if err == nil && len(got.Addresses) == 0 {
			err = errors.New("no addresses")
		}
		return err
	}
	claim := func(key string) func(value string) error {
		return func(value string) error {
			name, _, err := claimOf(&metav1.ObjectMeta{Annotations: map[string]string{key: value}}, "eth0")
			if err == nil && name != "db.lan" {
				err = fmt.Errorf("the claim %q", name)
			}
			return err
		}
	}
	named := func(value string) error {
		o, w, _ := newOwners(t, "", map[string]string{podsPath + "x": objectJSON(t, "x", map[string]any{"metadata.annotations": map[string]string{ownerKey: value}})})
		_, err := o.Ask(t.Context(), ask("x"))
		if asked := w.requestPaths(); (len(asked) > 1) != (len(value) <= maxNamed) {
			t.Errorf("an owner of %d bytes: requests %.200q", len(value), asked)
		}
		return err
	}
	for name, test := range map[string]struct {
		do           func(value string) error
		value, wants string
	}{
		"addresses":               {static, addressList(maxAddresses), ""},
		"one address more":        {static, addressList(maxAddresses + 1), "it has more than 256 addresses"},
		"room for addresses":      {static, addressList(maxAddresses) + strings.Repeat(" ", maxStatic-len(addressList(maxAddresses))), ""},
		"more room for addresses": {static, addressList(maxAddresses) + strings.Repeat(" ", maxStatic+1-len(addressList(maxAddresses))), `annotation ipam.relink.dev/lan="fdff:`},
		"an owner":                {named, "kind." + strings.Repeat("g", maxNamed-len("kind./n")) + "/n", "no such kind"},
		"a longer owner":          {named, "kind." + strings.Repeat("g", maxNamed+1-len("kind./n")) + "/n", `annotation ipam.relink.dev/owner="kind.ggg`},
		"networks":                {claim(networksKey), networkList(maxElements, maxNetworks), ""},
		"more networks":           {claim(networksKey), networkList(maxElements, maxNetworks+1), `annotation k8s.v1.cni.cncf.io/networks="[{\"x\":`},
		"one network more":        {claim(networksKey), networkList(maxElements+1, 0), "it has more than 256 networks"},
		"the default network":     {claim(defaultNetworkKey), networkList(maxElements, maxNetworks+1), `annotation v1.multus-cni.io/default-network="[{\"x\":`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.do(test.value)
			switch {
			case test.wants == "" && err != nil:
				t.Errorf("%d bytes: %.1000s", len(test.value), err)
			case test.wants != "" && (!errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), test.wants)):
				t.Errorf("%d bytes: %.1000s, want %q", len(test.value), err, test.wants)
			}
			if strings.HasPrefix(name, "more ") && !strings.Contains(fmt.Sprint(err), fmt.Sprintf(" is longer than %d bytes: shorten it", len(test.value)-1)) {
				t.Errorf("%.1000s", err)
			}
		})
	}
}

// Whoever makes a pod does not write the node's log: an error shows the beginning of a value, in quotes.
func TestErrorsAreShort(t *testing.T) {
	static := func(value string) error {
		_, err := staticOf(map[string]string{"ipam.relink.dev/lan": value}, "lan", "eth0")
		return err
	}
	networks := func(value string) error {
		_, _, err := claimOf(&metav1.ObjectMeta{Annotations: map[string]string{networksKey: value}}, "eth0")
		return err
	}
	o, _, _ := newOwners(t, "", nil)
	named := func(value string) error {
		_, err := o.client.annotatedOwner(t.Context(), &metav1.ObjectMeta{Namespace: "shop"}, value)
		return err
	}
	claimed := func(name string) string { return fmt.Sprintf(`[{"interface":"eth0","ipam-claim-reference":%q}]`, name) }
	for name, err := range map[string]error{
		"no address":          static(strings.Repeat("\x01", maxStatic)),
		"a zone":              static("fe80::1%" + strings.Repeat("\x01", maxStatic-20)),
		"far too long":        static(strings.Repeat("\x01", 255<<10)),
		"an owner":            named(strings.Repeat("\x01", maxNamed)),
		"an owner, too long":  named(strings.Repeat("\x01", 255<<10)),
		"no list":             networks(`["` + strings.Repeat("\\n", 1<<15-20) + `"]`),
		"a number":            networks(`[` + strings.Repeat("1", maxNetworks-20) + `]`),
		"the name of a claim": networks(claimed(strings.Repeat("a", 254))),
		"a name with lines":   networks(claimed("a\nb")),
		"a name with slashes": networks(claimed("../secrets/x")),
		"two names":           networks(`[{"interface":"eth0","ipam-claim-reference":"` + strings.Repeat("x", 1<<14) + `"},{"interface":"eth0","ipam-claim-reference":"` + strings.Repeat("y", 1<<14) + `"}]`),
		"networks, too long":  networks(strings.Repeat("[", 255<<10)),
	} {
		if !errors.Is(err, owner.ErrInvalid) || len(err.Error()) > 1500 || strings.ContainsAny(err.Error(), "\x01\n") {
			t.Errorf("%s: %d bytes: %.2000q", name, len(fmt.Sprint(err)), fmt.Sprint(err))
		}
	}
}

// The watch keeps of a value that is too long only so much that it is still too long.
func TestTheWatchKeepsNoLongValues(t *testing.T) {
	long := strings.Repeat(",", 255<<10)
	for _, key := range []string{networksKey, defaultNetworkKey, ownerKey, "ipam.relink.dev/lan", "kubernetes.io/config.mirror"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: long}}}
		kept := trimmed(pod).Annotations[key]
		if len(kept) != limitOf(key)+1 || checkLength(key, kept) == nil {
			t.Errorf("%s: %d bytes are kept", key, len(kept))
		}
		short := long[:limitOf(key)]
		pod.Annotations[key] = short
		if kept := trimmed(pod).Annotations[key]; kept != short {
			t.Errorf("%s: %d of %d bytes are kept", key, len(kept), len(short))
		}
	}
}

// A reference can have any name. No object has one that is too long, or that is a path.
func TestReferencesToNamesThatCannotBe(t *testing.T) {
	for _, name := range []string{strings.Repeat("a", 255<<10), "../pods/x", "a\nb", ""} {
		o, w, _ := newOwners(t, "", map[string]string{podsPath + "x": objectJSON(t, "x", controlled("kubevirt.io/v1", "VirtualMachineInstance", name))})
		if got, err := o.Ask(t.Context(), ask("x")); err != nil || got.Owner.Kind != "pod" {
			t.Errorf("%.20q: %+v, %.1000v", name, got, err)
		}
		w.wants(t, "GET "+podsPath+"x")
	}
}

// What the most expensive annotations cost.
func BenchmarkTheLongestAnnotations(b *testing.B) {
	addresses, networks := addressList(maxAddresses), networkList(maxElements, maxNetworks)
	b.Run("addresses", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got, err := staticOf(map[string]string{"ipam.relink.dev/lan": addresses}, "lan", "eth0"); err != nil || !slices.Contains(got.Addresses, got.Addresses[0]) {
				b.Fatal(err)
			}
		}
	})
	b.Run("networks", func(b *testing.B) {
		b.ReportAllocs()
		pod := &metav1.ObjectMeta{Annotations: map[string]string{networksKey: networks, defaultNetworkKey: networks}}
		for b.Loop() {
			if _, _, err := claimOf(pod, "eth0"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Multus's status of a pod names its interfaces. That of another pod of the same name does not count, and neither does one that is no JSON.
func TestNetworksOf(t *testing.T) {
	annotated := func(name, status string) string {
		return objectJSON(t, name, map[string]any{"metadata.annotations": map[string]any{networkStatusKey: status}})
	}
	web := annotated("web-0", `[{"name": "cbr0", "interface": "eth0", "default": true}, {"name": "shop/lan", "interface": "net1", "mac": "02:00:00:00:00:0A"}]`)
	o, _, _ := newOwners(t, "node1", map[string]string{podsPath + "web-0": web, podsPath + "web-1": annotated("web-1", "[")})
	startWatch(t, o)
	await(t, "the pods", func() bool { return o.watch.pod("shop", "web-0") != nil && o.watch.pod("shop", "web-1") != nil })
	uid := string(o.watch.pod("shop", "web-0").UID)
	want := []attachment.PodNetwork{{Network: "cbr0", Interface: "eth0"}, {Network: "lan", Interface: "net1", MAC: "02:00:00:00:00:0a"}}
	if got := o.NetworksOf(attachment.Pod{Namespace: "shop", Name: "web-0", UID: uid}); !slices.Equal(got, want) {
		t.Errorf("web-0 has %v", got)
	}
	for _, other := range []attachment.Pod{{Namespace: "shop", Name: "web-0", UID: "another"}, {Namespace: "shop", Name: "web-1", UID: string(o.watch.pod("shop", "web-1").UID)}, {Namespace: "shop", Name: "none", UID: uid}} {
		if got := o.NetworksOf(other); got != nil {
			t.Errorf("%v has %v", other, got)
		}
	}
}
