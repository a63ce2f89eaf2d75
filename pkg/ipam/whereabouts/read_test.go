package whereabouts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ipPool is an IPPool as kubectl prints it.
func ipPool(name, subnet, allocations string) string {
	return fmt.Sprintf(`{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"IPPool","metadata":{"name":%q,"namespace":"kube-system","resourceVersion":"7"},"spec":{"range":%q,"allocations":{%s}}}`,
		name, subnet, allocations)
}

func listOf(items ...string) string {
	return `{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":""},"items":[` + strings.Join(items, ",") + `]}`
}

// poolLines is what was read, in few words.
func poolLines(p Pools) (words []string) {
	for _, a := range p.allocations {
		words = append(words, fmt.Sprintf("%s %s %s %s/%s", a.Address, a.ContainerID, a.IfName, a.Pod.Namespace, a.Pod.Name))
	}
	for _, o := range p.unknown {
		words = append(words, fmt.Sprintf("%s %s: %s: %s", o.Address, o.File, o.State, o.Reason))
	}
	return words
}

func TestRead(t *testing.T) {
	const web = `{"id":"c1","podref":"shop/web-0","ifname":"net1"}`
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a list": {listOf(ipPool("10.3.0.0-24", "10.3.0.0/24", `"5":`+web+`,"10":{"id":"c2","podref":"shop/web-1","ifname":"net1"}`)), []string{
			"10.3.0.5 c1 net1 shop/web-0", "10.3.0.10 c2 net1 shop/web-1",
		}},
		"one":     {ipPool("10.3.0.0-24", "10.3.0.0/24", `"5":`+web), []string{"10.3.0.5 c1 net1 shop/web-0"}},
		"nothing": {listOf(ipPool("10.3.0.0-24", "10.3.0.0/24", "")), nil},
		"IPv6, far from the first": {listOf(ipPool("fd00-7---64", "fd00:7::/64", `"5":`+web+`,"9223372036854775807":`+web+`,"18446744073709551615":`+web)), []string{
			"fd00:7::5 c1 net1 shop/web-0", "fd00:7::7fff:ffff:ffff:ffff c1 net1 shop/web-0", "fd00:7::ffff:ffff:ffff:ffff c1 net1 shop/web-0",
		}},
		"a carry into the upper half": {ipPool("x", "fd00:0:0:0:ffff:ffff:ffff:fffe/48", `"3":`+web), []string{"fd00:0:0:1::1 c1 net1 shop/web-0"}},
		"node slices, which begin in the middle": {
			listOf(ipPool("lan-node1-10.3.0.64-26", "10.3.0.64/26", `"1":`+web), ipPool("lan-node2-10.3.0.128-26", "10.3.0.128/26", `"1":`+web)),
			[]string{"10.3.0.65 c1 net1 shop/web-0", "10.3.0.129 c1 net1 shop/web-0"},
		},
		"counted from what is written": {ipPool("x", "10.3.0.10/24", `"1":`+web), []string{"10.3.0.11 c1 net1 shop/web-0"}},
		"without an interface, of an old Whereabouts": {ipPool("x", "10.3.0.0/24", `"5":{"id":"c1","podref":"shop/web-0"}`), []string{
			"10.3.0.5 c1  shop/web-0",
		}},
		"without a pod": {ipPool("x", "10.3.0.0/24", `"5":{"id":"c1","podref":"web-0","ifname":"net1"},"6":{"id":"c2","podref":"a/b/c","ifname":"net1"},"7":{"id":"c3","ifname":"net1"}`), []string{
			"10.3.0.5 c1 net1 /", "10.3.0.6 c2 net1 /", "10.3.0.7 c3 net1 /",
		}},
		"a name that no pod has": {ipPool("x", "10.3.0.0/24", `"5":{"id":"c1","podref":"shop/\u001b[31mred","ifname":"net1"},"6":{"id":"c2","podref":"Shop/web-0","ifname":"net1"}`), []string{
			"10.3.0.5 c1 net1 /", "10.3.0.6 c2 net1 /",
		}},
		"no addresses of the range": {ipPool("x", "10.3.0.0/24", `"256":`+web+`,"-1":`+web+`,"five":`+web+`,"":`+web+`,"99999999999999999999":`+web+`,"1.5":`+web), []string{
			`invalid IP IPPool kube-system/x, allocation "": ignored: it is no address of 10.3.0.0/24`,
			`invalid IP IPPool kube-system/x, allocation "-1": ignored: it is no address of 10.3.0.0/24`,
			`invalid IP IPPool kube-system/x, allocation "1.5": ignored: it is no address of 10.3.0.0/24`,
			`invalid IP IPPool kube-system/x, allocation "256": ignored: it is no address of 10.3.0.0/24`,
			`invalid IP IPPool kube-system/x, allocation "99999999999999999999": ignored: it is no address of 10.3.0.0/24`,
			`invalid IP IPPool kube-system/x, allocation "five": ignored: it is no address of 10.3.0.0/24`,
		}},
		"nobody's": {ipPool("x", "10.3.0.0/24", `"5":{"id":"","podref":"shop/web-0","ifname":"net1"},"6":{"id":"../c1","podref":"shop/web-0"},"7":{"id":"c1","ifname":"a/b"}`), []string{
			`10.3.0.5 IPPool kube-system/x: ignored: nobody can tell whose it is, and a pod may have it: container ID "": is empty`,
			`10.3.0.6 IPPool kube-system/x: ignored: nobody can tell whose it is, and a pod may have it: container ID "../c1": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`,
			`10.3.0.7 IPPool kube-system/x: ignored: nobody can tell whose it is, and a pod may have it: interface name "a/b": contains '/', ':', white space or a control character`,
		}},
		"what is no IPPool does not keep the rest": {
			listOf(`7`, `{"kind":"Pod","apiVersion":"v1"}`, `{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"NodeSlicePool"}`, ipPool("bad", "all", ""), ipPool("x", "10.3.0.0/24", `"5":`+web)),
			[]string{
				"10.3.0.5 c1 net1 shop/web-0", `invalid IP IPPool kube-system/bad: ignored: its spec.range "all" is no network`, "invalid IP items[0]: ignored: it is no IPPool of Whereabouts",
				"invalid IP items[1]: ignored: it is no IPPool of Whereabouts", "invalid IP items[2]: ignored: it is no IPPool of Whereabouts",
			},
		},
	} {
		p, err := Read([]byte(test.text))
		if got := poolLines(p); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

func TestReadOfWhatHasNoIPPool(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", "7", `"IPPool"`, "{}", listOf(), listOf("{}"), `{"kind":"IPPool","apiVersion":"crd.projectcalico.org/v1","spec":{"range":"10.3.0.0/24"}}`, ipPool("x", "all", ""),
		`{"kind":"Status","apiVersion":"v1","message":"the server doesn't have a resource type"}`, `{"kind":"List","items":{}}`, ipPool("x", "::ffff:10.3.0.0/120", ""),
	} {
		if p, err := Read([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "it has no IPPool of Whereabouts: make it by kubectl get ippools.whereabouts.cni.cncf.io -A -o json") {
			t.Errorf("%s: %v, %v", text, poolLines(p), err)
		}
	}
}

// An address is as far from the first one as Whereabouts counts.
func TestAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		subnet := netip.MustParsePrefix(rapid.SampledFrom([]string{"10.3.0.0/16", "10.3.255.128/25", "fd00:7::/64", "fd00:7::ffff:ffff:ffff:ff00/100", "0.0.0.0/0"}).Draw(t, "subnet"))
		n := rapid.IntRange(0, 1000).Draw(t, "offset")
		want := subnet.Addr()
		for range n {
			want = want.Next()
		}
		got, ok := addressAt(subnet, fmt.Sprint(n))
		if ok != subnet.Contains(want) || ok && got != want {
			t.Fatalf("%s + %d = %s, %t, want %s", subnet, n, got, ok, want)
		}
	})
}

func FuzzParseWhereabouts(f *testing.F) {
	f.Add([]byte(listOf(ipPool("x", "10.3.0.0/24", `"5":{"id":"c1","podref":"shop/web-0","ifname":"net1"}`))))
	f.Add([]byte(ipPool("x", "fd00::/64", `"9223372036854775807":{"id":"c1"}`)))
	f.Add([]byte(listOf(`7`, ipPool("x", "0.0.0.0/0", `"4294967295":{"id":"c1"}`))))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Read(b)
		if err != nil {
			return
		}
		for i, a := range p.allocations {
			in := slices.ContainsFunc(p.ranges, func(r netip.Prefix) bool { return r.Contains(a.Address) })
			if !in || validate(a.ContainerID, a.IfName) != nil || i > 0 && a.Address.Less(p.allocations[i-1].Address) {
				t.Errorf("%+v", a)
			}
		}
		for _, o := range p.unknown {
			if o.State.IsSettled() || o.Reason == "" {
				t.Errorf("%+v", o)
			}
		}
	})
}
