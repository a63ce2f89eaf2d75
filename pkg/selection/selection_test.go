package selection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/selection"
)

func thing(namespace, pod, id, network string, parents ...string) selection.Candidate {
	return selection.Candidate{Pod: attachment.Pod{Namespace: namespace, Name: pod}, ContainerID: id, Network: network, Parents: parents}
}

// things are those of the table tests. The pod shop/moving is being replaced: it has two sandboxes.
var things = []selection.Candidate{
	0: thing("shop", "web-0", "4f1c2ab0d6e91aa", "lan", "bond4.3", "bond4", "eth0", "eth1"),
	1: thing("shop", "web-0", "4f1c2ab0d6e91aa", "storage", "eth2"),
	2: thing("lab", "web-0", "4f77aa", "lan", "bond4.3", "bond4", "eth0", "eth1"),
	3: thing("shop", "moving", "aaa1", "lan", "eth2"),
	4: thing("shop", "moving", "bbb1", "lan", "eth2"),
	5: thing("", "", "cnitool-77", "lan", "eth2"),
	6: thing("shop", "abba", "ddd1", "lan", "eth2"),
	7: thing("lab", "db", "abba0", "lan", "eth2"),
	8: thing("lab", "abba0", "eee1", "lan", "eth2"),
	9: thing("", "imported", "fff1", "lan", "eth2"),
}

func TestChoose(t *testing.T) {
	named := func(names ...string) selection.Selection { return selection.Selection{Names: names} }
	tests := map[string]struct {
		selection selection.Selection
		want      []int
	}{
		"everything":                           {selection.Selection{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"a pod with its namespace":             {named("shop/web-0"), []int{0, 1}},
		"a pod's name that is there once":      {named("moving"), []int{3, 4}},
		"a pod's name, by its namespace":       {selection.Selection{Names: []string{"web-0"}, Namespace: "lab"}, []int{2}},
		"a pod twice":                          {named("shop/web-0", "shop/web-0"), []int{0, 1}},
		"two pods":                             {named("shop/web-0", "lab/web-0"), []int{0, 1, 2}},
		"a container ID":                       {named("4f77aa"), []int{2}},
		"the beginning of a container ID":      {named("4f7"), []int{2}},
		"as much of an ID as is shown":         {named(selection.ShortID("4f1c2ab0d6e91aa")), []int{0, 1}},
		"a whole ID goes before a pod's name":  {named("abba0"), []int{7}},
		"a sandbox of no pod":                  {named("cnitool"), []int{5}},
		"a pod whose namespace is unknown":     {named("/imported"), []int{9}},
		"a network":                            {selection.Selection{Network: "storage"}, []int{1}},
		"a parent":                             {selection.Selection{Parent: "bond4"}, []int{0, 2}},
		"a member of a bond":                   {selection.Selection{Parent: "eth1"}, []int{0, 2}},
		"a pod on a parent":                    {selection.Selection{Names: []string{"shop/web-0"}, Parent: "eth2"}, []int{1}},
		"a name that a limit makes the only":   {selection.Selection{Names: []string{"web-0"}, Network: "storage"}, []int{1}},
		"a namespace":                          {selection.Selection{Namespace: "lab"}, []int{2, 7, 8}},
		"a name with the same namespace again": {selection.Selection{Names: []string{"lab/db"}, Namespace: "lab"}, []int{7}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := test.selection.Choose(things)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for i, is := range chosen {
				if is {
					got = append(got, i)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChooseRefuses(t *testing.T) {
	tests := map[string]struct {
		selection selection.Selection
		is        error
		says      string
	}{
		"no such pod": {selection.Selection{Names: []string{"shop/web-9"}}, selection.ErrNothing,
			`"shop/web-9" matches nothing: there is no such pod; relink list shows what there is`},
		"no such name": {selection.Selection{Names: []string{"zzz"}}, selection.ErrNothing,
			`"zzz" matches nothing: there is no such pod or container ID; relink list shows what there is`},
		"not on that network": {selection.Selection{Names: []string{"moving"}, Network: "storage"}, selection.ErrNothing,
			`"moving" matches nothing: there is no such pod or container ID with network storage; relink list shows what there is`},
		"one of two is wrong": {selection.Selection{Names: []string{"shop/web-0", "shop/web"}}, selection.ErrNothing, `"shop/web"`},
		"a pod of several namespaces": {selection.Selection{Names: []string{"web-0"}}, selection.ErrAmbiguous,
			`"web-0" matches several: lab/web-0, shop/web-0; name one of them in full`},
		"the beginning of several IDs": {selection.Selection{Names: []string{"4f"}}, selection.ErrAmbiguous,
			`"4f" matches several: 4f1c2ab0d6e91aa (shop/web-0), 4f77aa (lab/web-0); name one of them in full`},
		"a pod, and the beginning of an ID": {selection.Selection{Names: []string{"abba"}}, selection.ErrAmbiguous,
			`"abba" matches several: shop/abba, abba0 (lab/db); name one of them in full`},
		"no such namespace": {selection.Selection{Namespace: "shpo"}, selection.ErrNothing,
			"--namespace shpo matches nothing: there is lab, shop"},
		"no such network": {selection.Selection{Network: "lna"}, selection.ErrNothing, "--network lna matches nothing: there is lan, storage"},
		"no such parent":  {selection.Selection{Parent: "eth9"}, selection.ErrNothing, "--parent eth9 matches nothing: there is bond4, bond4.3, eth0, eth1, eth2"},
		"a parent that the network is not on": {selection.Selection{Network: "storage", Parent: "bond4"}, selection.ErrNothing,
			"--parent bond4 matches nothing: there is eth2"},
		"an empty name":                      {selection.Selection{Names: []string{""}}, nil, `invalid name ""`},
		"an empty pod":                       {selection.Selection{Names: []string{"shop/"}}, nil, `invalid name "shop/"`},
		"a pod of no namespace":              {selection.Selection{Names: []string{"/web-0"}}, selection.ErrNothing, "no such pod"},
		"a pod against its own namespace":    {selection.Selection{Names: []string{"shop/web-0"}, Namespace: "lab"}, nil, `invalid name "shop/web-0": --namespace says lab`},
		"a pod's name is never cut":          {selection.Selection{Names: []string{"shop/web"}}, selection.ErrNothing, "no such pod"},
		"a name that no thing can ever have": {selection.Selection{Names: []string{"a/b/c"}}, selection.ErrNothing, "no such pod"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := test.selection.Choose(things)
			if err == nil || chosen != nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, %v; want an error that says %s", chosen, err, test.says)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
		})
	}
}

// What nobody can tell is chosen by each limit, and no name of a pod finds it.
func TestChooseWhatIsUnknown(t *testing.T) {
	torn := func(t selection.Candidate) selection.Candidate { t.Unknown = true; return t }
	all := []selection.Candidate{
		0: thing("shop", "web-0", "aaaa", "lan", "eth0"),
		1: torn(thing("", "", "bbbb", "")),
		2: torn(thing("shop", "web-0", "cccc", "storage")),
		3: torn(thing("", "", "aaaa", "")), // Beside the first one, which tells the pod.
		4: thing("", "", "dddd", ""),
		5: torn(thing("lab", "web-0", "eeee", "storage", "eth2")),
	}
	tests := map[string]struct {
		selection selection.Selection
		want      []int
	}{
		"its namespace is unknown, or that of its sandbox": {selection.Selection{Namespace: "lab"}, []int{1, 5}},
		"its namespace is told by what is left":            {selection.Selection{Namespace: "shop"}, []int{0, 1, 2, 3}},
		"its network is unknown":                           {selection.Selection{Network: "lan"}, []int{0, 1, 3}},
		"its parents are unknown":                          {selection.Selection{Parent: "eth0"}, []int{0, 1, 2, 3}},
		"its container ID names it":                        {selection.Selection{Names: []string{"bbbb"}}, []int{1}},
		"no name of a pod finds it":                        {selection.Selection{Names: []string{"shop/web-0"}}, []int{0, 2, 3}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chosen, err := test.selection.Choose(all)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for i, is := range chosen {
				if is {
					got = append(got, i)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := (selection.Selection{Names: []string{"web-0"}}).Choose(all); !errors.Is(err, selection.ErrAmbiguous) {
		t.Errorf("web-0: %v, want that it is ambiguous: two torn ones have the name", err)
	}
	for says, by := range map[string]selection.Selection{
		"--namespace shpo matches nothing: there is lab, shop; 1 attachment without a readable checkpoint may be meant: see relink list":   {Namespace: "shpo"},
		"--network typo matches nothing: there is lan, storage; 2 attachments without a readable checkpoint may be meant: see relink list": {Network: "typo"},
		"--parent lna0 matches nothing: there is eth0, eth2; 3 attachments without a readable checkpoint may be meant: see relink list":    {Parent: "lna0"},
		"--parent eth2 matches nothing: there is eth0; 2 attachments without a readable checkpoint may be meant: see relink list":          {Network: "lan", Parent: "eth2"},
		"--parent eth2 matches nothing: there is eth0; 2 attachments without a readable checkpoint may be meant: see relink list -o wide":  {Network: "lan", Parent: "eth2", Lister: "relink list -o wide"},
	} {
		if chosen, err := by.Choose(all); !errors.Is(err, selection.ErrNothing) || err.Error() != says {
			t.Errorf("%+v: %v, %v, want %s", by, chosen, err, says)
		}
	}
}

// As much of an ID as is shown names one sandbox.
func TestShortID(t *testing.T) {
	random := strings.Repeat("4f1c2ab0d6e91aa7", 4)
	for id, want := range map[string]string{
		random:                    "4f1c2ab0d6e91",
		random[:63]:               random[:63],
		random[:63] + "g":         random[:63] + "g",
		"cnitool-1234567890aaaa":  "cnitool-1234567890aaaa",
		"ns-4026532287-123456789": "ns-4026532287-123456789",
		"":                        "",
	} {
		if got := selection.ShortID(id); got != want {
			t.Errorf("ShortID(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	s := selection.Selection{Names: []string{"shop/web-0", "4f1c"}, Namespace: "shop", Network: "lan", Parent: "bond4"}
	if got := strings.Join(s.Words(), " "); got != "shop/web-0 4f1c --namespace shop --network lan --parent bond4" {
		t.Error(got)
	}
	if got := (selection.Selection{}).Words(); len(got) != 0 {
		t.Error(got)
	}
}

// A message that lists what there is stays one that can be read.
func TestAListIsCutShort(t *testing.T) {
	var many []selection.Candidate
	for i := range 500 {
		many = append(many, thing("shop", fmt.Sprintf("web-%03d", i), fmt.Sprintf("c%03d", i), "lan"))
	}
	_, err := selection.Selection{Names: []string{"c"}}.Choose(many)
	if err == nil || !strings.Contains(err.Error(), "c009 (shop/web-009), and 490 more") || len(err.Error()) > 400 {
		t.Error(err)
	}
}

// Whatever is chosen by a name is one pod or one sandbox, and is within the limits.
func TestANameMeansOneThing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{1,3}`)
		var all []selection.Candidate
		for range rapid.IntRange(0, 8).Draw(t, "things") {
			all = append(all, thing(word.Draw(t, "namespace"), word.Draw(t, "pod"), word.Draw(t, "id"), word.Draw(t, "network"), word.Draw(t, "parent")))
		}
		s := selection.Selection{Names: []string{word.Draw(t, "name")}}
		if rapid.Bool().Draw(t, "limited") {
			s.Network = word.Draw(t, "in network")
		}
		chosen, err := s.Choose(all)
		if err != nil {
			return
		}
		pods, ids := map[attachment.Pod]bool{}, map[string]bool{}
		for i, is := range chosen {
			if !is {
				continue
			}
			pods[all[i].Pod], ids[all[i].ContainerID] = true, true
			if s.Network != "" && all[i].Network != s.Network {
				t.Fatalf("%+v is not on network %s", all[i], s.Network)
			}
		}
		if len(pods) == 0 || len(pods) > 1 && len(ids) > 1 {
			t.Fatalf("%q chose pods %v, sandboxes %v", s.Names[0], pods, ids)
		}
	})
}
