package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

// reservedFor reserves an address of the network for the pod.
func reservedFor(t *testing.T, dir, network, address, namespace, name string) {
	t.Helper()
	store, err := lease.Open(dir, network)
	if err == nil {
		_, err = store.Reserve(t.Context(), netip.MustParseAddr(address), attachment.Pod{Namespace: namespace, Name: name}.Owner(), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Each malformed command line ends with exit status 2 and one line that names what is wrong. relink changes nothing.
func TestMalformedIPAMCommandLines(t *testing.T) {
	dir := t.TempDir()
	reservedFor(t, dir, "lan", "10.3.0.9", "shop", "web-0")
	reservedFor(t, dir, "storage", "10.3.0.9", "lab", "web-0")
	before, err := os.ReadFile(filepath.Join(dir, "lan.db"))
	if err != nil {
		t.Fatal(err)
	}
	for line, says := range map[string]string{
		"":                                "relink ipam needs a verb: import, list",
		"lst":                             `unknown verb "lst": did you mean list?`,
		"releas":                          `unknown verb "releas": relink ipam --help lists the verbs`,
		"list shop/":                      `invalid name "shop/"`,
		"list /":                          `invalid name "/"`,
		"list a/b/c":                      `"a/b/c" matches nothing`,
		"list 10.3.0.300":                 `"10.3.0.300" matches nothing`,
		"list 10.3.0.0/33":                `"10.3.0.0/33" matches nothing`,
		"list --state gone":               "must be held, reserved or quarantined",
		"list --state":                    "--state needs a value: only what is in this state: held, reserved or quarantined",
		"list -o tabel":                   "must be table, wide, name, json or yaml",
		"list -q -v":                      "--quiet and --verbose cannot be given together",
		"list --network lam":              "--network lam matches nothing: " + dir + " has leases of lan, storage",
		"list -n shpo":                    "--namespace shpo matches nothing: there is lab, shop",
		"list web-0":                      `"web-0" matches several: lab/web-0, shop/web-0`,
		"list --address 10.3.0.9":         "unknown flag --address: relink ipam list --help lists the flags",
		"show":                            "an argument is missing: relink ipam",
		"show 10.3.0.0/24":                `invalid address "10.3.0.0/24"`,
		"show web-0":                      `invalid address "web-0"`,
		"show 10.3.0.9 shop/web-0":        `unexpected argument "shop/web-0": relink ipam show ADDRESS`,
		"show 10.3.0.9 -o name":           "must be table, json or yaml",
		"show 10.3.0.9 -n shop":           "unknown flag -n: relink ipam show --help lists the flags",
		"usage lan":                       `unexpected argument "lan": relink ipam usage takes none`,
		"usage --network lam":             "--network lam matches nothing",
		"release":                         "an argument is missing: relink ipam",
		"release 10.3.0.9":                "the holder is missing: name its pod or its container ID, or give --nobody",
		"release 10.3.0.9 shop/web-0":     "10.3.0.9 is leased in networks lan, storage: give --network NETWORK",
		"release shop/web-0 10.3.0.9":     `invalid address "shop/web-0"`,
		"release 10.3.0.9 web-0 --nobody": `--nobody contradicts the holder "web-0"`,
		"release 10.3.0.9 --nobody --ifname eth0":           "--ifname and --nobody cannot be given together",
		"release 10.3.0.9 --ifname eth0":                    "the holder is missing",
		"release 10.3.0.9 --pod web-0":                      "unknown flag --pod",
		"reserve 10.3.0.9":                                  "an argument is missing: relink ipam reserve ADDRESS [NAMESPACE/]POD",
		"reserve 10.3.0.9 web-0 --network lan":              `the namespace of pod "web-0" is missing: name the pod as NAMESPACE/POD, or add --namespace`,
		"reserve 10.3.0.9 a/b/c --network lan":              `no pod can have the name "b/c"`,
		"reserve 10.3.0.9 shop/web-0":                       "--network is missing: give --network NETWORK; " + dir + " has leases of lan, storage",
		"reserve 10.3.0.9 shop/web-0 --network lam":         `invalid --network "lam": it has given no address yet`,
		"reserve 10.3.0.9 shop/web-0 --network ../lan":      `network "../lan"`,
		"reserve 10.3.0.9 shop/web-0 --network lan --for x": `invalid --for "x": must be a time such as`,
		"reset-clock":                                                    "--network is missing",
		"reset-clock lan":                                                `unexpected argument "lan": relink ipam reset-clock --network NETWORK`,
		"reset-clock --network lam":                                      "--network lam matches nothing",
		"import --network lan":                                           "an argument is missing: relink ipam import DIR|FILE",
		"import /nowhere --network lan":                                  "/nowhere: no such file or directory",
		"import /tmp --retain 1h":                                        "--retain 1h0m0s needs --sticky",
		"import /tmp --sticky=claim":                                     `invalid --sticky "claim": must be pod or owner`,
		"import /tmp --from calico":                                      `invalid --from "calico": must be host-local or whereabouts`,
		"import /tmp --from whereabouts":                                 "--from whereabouts needs --pool",
		"import /tmp --network lan --pool ''":                            `invalid --pool "": it must be the name of an AddressPool`,
		"import /nowhere --network lan --from whereabouts --pool lan":    "/nowhere: no such file or directory",
		"import /etc/passwd --network lan --from whereabouts --pool lan": "it has no IPPool of Whereabouts: make it by kubectl",
		"list --data-dir /nowhere":                                       "data directory: stat /nowhere",
		"usage --data-dir " + os.Args[0]:                                 "not a directory",
		"release 10.3.0.9 x --network ''":                                `invalid --network "": it must not be empty; leave it out for all`,
		"reserve 10.3.0.9 -n shop -n lab x":                              "--network is missing",
	} {
		args := append([]string{"--checkpoint-dir", t.TempDir(), "ipam", "--data-dir", dir}, strings.Fields(strings.ReplaceAll(line, "''", ""))...)
		if strings.HasSuffix(line, "''") {
			args = append(args, "")
		}
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, &stdout, &stderr)
		if code != cli.Usage || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), says) {
			t.Errorf("%q: exit status %d, %q, %q; want one line that says %s", line, code, &stdout, &stderr, says)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, "lan.db"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the leases of lan were changed (%v)", err)
	}
}

func TestChooseLeases(t *testing.T) {
	owned := func(network, a, namespace, pod string, ids ...string) lease.Lease {
		l := lease.Lease{
			Address: netip.MustParseAddr(a), Network: network, State: lease.Reserved, Owner: attachment.Pod{Namespace: namespace, Name: pod}.Owner(),
		}
		for _, id := range ids {
			l.State, l.Holders = lease.Held, append(l.Holders, lease.Holder{ContainerID: id, IfName: "eth0"})
		}
		return l
	}
	all := holdingsOf([]lease.Lease{
		owned("lan", "10.3.0.2", "shop", "web-0", "aa1", "aa2"),
		owned("lan", "10.3.0.3", "", "", "bb1"),
		owned("lan", "fd00:3::2", "lab", "web-0", "cc1"),
		owned("storage", "10.3.0.2", "shop", "db-0"),
	})
	both, noPod, six, reserved := []string{"lan 10.3.0.2 aa1", "lan 10.3.0.2 aa2"}, "lan 10.3.0.3 bb1", "lan fd00:3::2 cc1", "storage 10.3.0.2 "
	for name, test := range map[string]struct {
		by   selection.Selection
		want []string
		says string
	}{
		"nothing is named":                     {selection.Selection{}, append(both, noPod, six, reserved), ""},
		"a pod that has two sandboxes":         {selection.Selection{Names: []string{"shop/web-0"}}, both, ""},
		"one of them":                          {selection.Selection{Names: []string{"aa2"}}, both[1:], ""},
		"a pod of which an address waits":      {selection.Selection{Names: []string{"db-0"}}, []string{reserved}, ""},
		"an address":                           {selection.Selection{Names: []string{"10.3.0.2"}}, append(both, reserved), ""},
		"an address that is written otherwise": {selection.Selection{Names: []string{"fd00:3:0::2"}}, []string{six}, ""},
		"a prefix":                             {selection.Selection{Names: []string{"10.3.0.2/31"}}, append(both, noPod, reserved), ""},
		"a prefix with bits behind it":         {selection.Selection{Names: []string{"fd00:3::77/64"}}, []string{six}, ""},
		"a prefix within a namespace":          {selection.Selection{Names: []string{"10.3.0.0/24"}, Namespace: "shop"}, append(both, reserved), ""},
		"an address and a pod":                 {selection.Selection{Names: []string{"10.3.0.3", "lab/web-0"}}, []string{noPod, six}, ""},
		"the same twice":                       {selection.Selection{Names: []string{"10.3.0.3", "bb1"}}, []string{noPod}, ""},
		"an address and a pod on a network":    {selection.Selection{Names: []string{"10.3.0.2", "lab/web-0"}, Network: "lan"}, append(both, six), ""},
		"a namespace":                          {selection.Selection{Namespace: "lab"}, []string{six}, ""},
		"a network that has no leases":         {selection.Selection{Network: "idle"}, append(both, noPod, six, reserved), ""}, // The caller has read only that network.
		"an address that is free":              {selection.Selection{Names: []string{"10.3.0.2", "10.3.0.4"}}, nil, `"10.3.0.4" matches nothing: no such address`},
		"a prefix without leases":              {selection.Selection{Names: []string{"10.4.0.0/16"}}, nil, `"10.4.0.0/16" matches nothing: no such address`},
		"an address of another namespace":      {selection.Selection{Names: []string{"10.3.0.3"}, Namespace: "shop"}, nil, `"10.3.0.3" matches nothing`},
		"a pod that is not there":              {selection.Selection{Names: []string{"10.3.0.2", "shop/web-1"}, Lister: ipamList}, nil, "relink ipam list shows what there is"},
		"two pods of one name":                 {selection.Selection{Names: []string{"web-0"}}, nil, "matches several: lab/web-0, shop/web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			test.by.Addresses = true
			chosen, err := choose(all, test.by)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, want %q", err, test.says)
			}
			var got []string
			for _, h := range chosen {
				got = append(got, fmt.Sprint(h.lease.Network, " ", h.lease.Address, " ", h.holder.ContainerID))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A table of leases fits on a terminal of 80 columns, whatever names it has. Only the pod and the address must fit.
func TestLeasesFitATerminal(t *testing.T) {
	var all []lease.Lease
	for i, name := range []string{"web-0", "a-stateful-set-of-a-long-name-0"} {
		all = append(all, lease.Lease{
			Address: netip.MustParseAddr("10.3.0.2").Next(), Network: "storage-network", State: lease.Quarantined, ReleasedAt: time.Now().Add(-time.Hour * time.Duration(i+1)),
			Owner: attachment.Pod{Namespace: "shop", Name: name}.Owner(), Reason: "in use by aa:bb:cc:dd:ee:ff on bond4.3, as a probe has found",
		})
	}
	for width, columns := range map[int]string{
		0: "POD ADDRESS NETWORK STATE AGE WHY", 200: "POD ADDRESS NETWORK STATE AGE WHY", 107: "POD ADDRESS NETWORK STATE WHY",
		100: "POD ADDRESS STATE WHY", 80: "POD ADDRESS STATE",
	} {
		var out bytes.Buffer
		leaseTable(all, &cli.Screen{Out: &out, Width: width})
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != columns {
			t.Errorf("width %d: columns %s, want %s", width, got, columns)
		}
		for _, line := range lines {
			if width > 0 && len(line) > width {
				t.Errorf("width %d: %q has %d", width, line, len(line))
			}
		}
	}
}

func TestFullSets(t *testing.T) {
	dir := t.TempDir()
	usage := func() []lease.Usage {
		all, err := leaseDir(dir).usages(t.Context(), "", &cli.Screen{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	store, err := lease.Open(dir, "lan")
	if err != nil {
		t.Fatal(err)
	}
	set := lease.RangeSet{{Span: lease.Span{First: netip.MustParseAddr("10.3.0.2"), Last: netip.MustParseAddr("10.3.0.11")}, Subnet: netip.MustParsePrefix("10.3.0.0/24")}}
	if _, err := store.Allocate(t.Context(), lease.Request{Attachment: attachment.Key{Network: "lan", ContainerID: "c", IfName: "eth0"}, Sets: []lease.RangeSet{set}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		8: "lan: 10.3.0.2-10.3.0.11 is nearly full (90.0%, 1 left): ",
		9: "lan: 10.3.0.2-10.3.0.11 is full: the next ADD fails: ",
	} {
		if i > 0 {
			reservedFor(t, dir, "lan", fmt.Sprintf("10.3.0.%d", i+2), "shop", fmt.Sprint("web-", i))
		}
		full := fullSets(usage())
		switch {
		case want == "" && len(full) > 0:
			t.Errorf("%d of 10: %s", i+1, full[0])
		case want != "" && (len(full) != 1 || !strings.HasPrefix(full[0].String(), want) || !strings.Contains(full[0].String(), "relink gc --leases --network lan")):
			t.Errorf("%d of 10: %v, want %s", i+1, full, want)
		}
	}
	// What a node has of a pool is always nearly full: it takes more when it needs more.
	if full := fullSets([]lease.Usage{{Sets: []lease.SetUsage{{Pool: "shared", Share: 1}}}}); full != nil {
		t.Errorf("a pool that nodes share: %v", full)
	}
}

// A user who presses the completion key does not wait for a store that is in use. The values of the other stores are
// offered.
func TestCompletionDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	reservedFor(t, dir, "busy", "10.3.0.9", "shop", "web-0")
	reservedFor(t, dir, "lan", "10.3.0.8", "shop", "web-1")
	f, err := os.Open(filepath.Join(dir, "busy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var stdout bytes.Buffer
	code := run(ctx, []string{"__complete", "ipam", "--data-dir", dir, "show", ""}, &stdout, &bytes.Buffer{})
	if code != cli.OK || stdout.String() != "10.3.0.8\n:4\n" || ctx.Err() != nil {
		t.Errorf("exit status %d, %q, %v", code, &stdout, ctx.Err())
	}
}
