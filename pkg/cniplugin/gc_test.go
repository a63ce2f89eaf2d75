package cniplugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

func TestValidAttachmentsTellsNoListFromAnEmptyOne(t *testing.T) {
	one := map[types.GCAttachment]bool{{ContainerID: "c1", IfName: "eth0"}: true}
	const must = ": must have containerID and ifname: everything is kept"
	for in, want := range map[string]struct {
		valid  map[types.GCAttachment]bool
		listed bool
		err    coded
	}{
		`{"name": "pods"}`:                    {},
		`{"valid-attachments": []}`:           {},
		`{"x": "cni.dev/valid-attachments"}`:  {},
		`{"cni.dev/valid-attachments": []}`:   {map[types.GCAttachment]bool{}, true, coded{}},
		`{"cni.dev/valid-attachments": null}`: {map[types.GCAttachment]bool{}, true, coded{}},
		`{"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]}`: {one, true, coded{}},
		`{"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}, null]}`: {nil, true,
			coded{7, `invalid "cni.dev/valid-attachments[1]": null` + must}},
		`{"cni.dev/valid-attachments": [{"containerID": "c1"}]}`: {nil, true,
			coded{7, `invalid "cni.dev/valid-attachments[0]": {"containerID": "c1"}` + must}},
		`{"cni.dev/valid-attachments": "c1"}`: {nil, false, coded{7, `invalid "cni.dev/valid-attachments": "c1": must be a list of attachments: everything is kept`}},
		`{"cni.dev/valid-attachments": {}}`:   {nil, false, coded{7, `invalid "cni.dev/valid-attachments": {}: must be a list of attachments: everything is kept`}},
		`{"cni.dev/valid-attachments": [[]]}`: {nil, true, coded{7, `invalid "cni.dev/valid-attachments[0]": []` + must}},
		`["cni.dev/valid-attachments"]`:       {nil, false, coded{6, "network configuration: must be an object"}},
	} {
		valid, listed, err := ValidAttachments([]byte(in))
		if diff := cmp.Diff(want.err, code(t, err)); diff != "" {
			t.Errorf("%s: error (-want +got):\n%s", in, diff)
		}
		if diff := cmp.Diff(want.valid, valid); diff != "" || listed != want.listed {
			t.Errorf("%s: listed %v (-want +got):\n%s", in, listed, diff)
		}
	}
}

// What is kept is valid to the plugins that are called next. All other keys stay as they are.
func TestWithValidAddsToTheList(t *testing.T) {
	c1, c2 := types.GCAttachment{ContainerID: "c1", IfName: "eth0"}, types.GCAttachment{ContainerID: "c2", IfName: "net1"}
	const both = `"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"net1"}]`
	const one = `"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "net1"}]`
	for in, test := range map[string]struct {
		more []types.GCAttachment
		want string
		err  coded
	}{
		`{"ipam": {"b": 1.50, "a": null}, "name": "pods", ` + one + `}`: {more: []types.GCAttachment{c1}, want: `{` + both + `,"ipam":{"b":1.50,"a":null},"name":"pods"}`},
		`{` + one + `, "name": "again"}`:                                {more: []types.GCAttachment{c2, c1}, want: `{` + both + `,"name":"again"}`},
		`{"name": "null", "cni.dev/valid-attachments": null}`:           {more: []types.GCAttachment{c2, c1}, want: `{` + both + `,"name":"null"}`},
		`{"CNI.dev/Valid-Attachments": [], "name": "case"}`:             {more: []types.GCAttachment{c1, c2}, want: `{` + both + `,"name":"case"}`},
		`{"cni.dev/attachments": [], "cni.dev/valid-attachments": [], "name": "as libcni"}`: {
			more: []types.GCAttachment{c1, c2}, want: `{` + strings.Replace(both, "valid-", "", 1) + `,` + both + `,"name":"as libcni"}`},
		`{"name": "none", "cni.dev/valid-attachments": []}`: {want: `{"cni.dev/valid-attachments":[],"name":"none"}`},
		`{"name": "pods"}`:                 {err: coded{7, `invalid "cni.dev/valid-attachments": missing: must list the valid attachments: everything is kept`}},
		`{"cni.dev/valid-attachments": 7}`: {err: coded{7, `invalid "cni.dev/valid-attachments": 7: must be a list of attachments: everything is kept`}},
	} {
		got, err := WithValid([]byte(in), test.more)
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" {
			t.Errorf("%s: error (-want +got):\n%s", in, diff)
		}
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// The line stays short, however many are kept.
func TestKeptByGC(t *testing.T) {
	const begin = "GC keeps what the runtime does not list, as its network namespace is not proven gone: "
	var all []string
	for i := range 200 {
		all = append(all, fmt.Sprintf("c%d", i))
	}
	for n, want := range map[int]string{0: "", 1: begin + "c0", 3: begin + "c0; c1; c2", 4: begin + "c0; c1; c2; and 1 more", 200: begin + "c0; c1; c2; and 197 more"} {
		if got := KeptByGC(all[:n]); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if all[3] != "c3" {
		t.Errorf("the list is changed: %s", all[3])
	}
}
