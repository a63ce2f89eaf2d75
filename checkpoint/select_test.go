package checkpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// populated has two sandboxes of one pod, the old one still there while it is
// being replaced, one of another pod, one of none, and one that can't be read.
func populated(t *testing.T) *Store {
	t.Helper()
	s := newStore(t)
	save(t, s,
		podRecord("aaaa1111", "eth0", "default", "web-0"), podRecord("aaaa1111", "net1", "default", "web-0"),
		podRecord("aabb2222", "eth0", "default", "web-0"),
		podRecord("cccc3333", "eth0", "other", "web-0"),
		record("cnitool-1", "eth0"),
	)
	write(t, s, "cccc3333/net1.json", "")
	write(t, s, "dddd4444/eth0.json", "")
	return s
}

func TestSelect(t *testing.T) {
	for name, test := range map[string]struct {
		ids          []string
		read, failed []string
		err          string
	}{
		"all": {
			read:   []string{"aaaa1111/eth0", "aaaa1111/net1", "aabb2222/eth0", "cccc3333/eth0", "cnitool-1/eth0"},
			failed: []string{"cccc3333/net1", "dddd4444/eth0"},
		},
		"by ID":                    {ids: []string{"aaaa1111"}, read: []string{"aaaa1111/eth0", "aaaa1111/net1"}},
		"by prefix":                {ids: []string{"aab"}, read: []string{"aabb2222/eth0"}},
		"with what is unreadable":  {ids: []string{"cccc3333"}, read: []string{"cccc3333/eth0"}, failed: []string{"cccc3333/net1"}},
		"unreadable alone":         {ids: []string{"ddd"}, failed: []string{"dddd4444/eth0"}},
		"by pod, old and new":      {ids: []string{"default/web-0"}, read: []string{"aaaa1111/eth0", "aaaa1111/net1", "aabb2222/eth0"}},
		"by pod, with its broken":  {ids: []string{"other/web-0"}, read: []string{"cccc3333/eth0"}, failed: []string{"cccc3333/net1"}},
		"several, one twice":       {ids: []string{"cni", "aab", "aabb2222"}, read: []string{"aabb2222/eth0", "cnitool-1/eth0"}},
		"a prefix of two":          {ids: []string{"aa"}, err: `"aa" begins the IDs of 2 sandboxes: give more of it`},
		"a prefix, one unreadable": {ids: []string{"aabb2222", "c"}, err: `"c" begins the IDs of 2 sandboxes: give more of it`},
		"an ID of none":            {ids: []string{"eeee"}, err: `no checkpoint of sandbox or pod "eeee": relink list shows what there is`},
		"one of several of none":   {ids: []string{"aab", "eeee"}, err: `no checkpoint of sandbox or pod "eeee": relink list shows what there is`},
		"a pod's name alone":       {ids: []string{"web-0"}, err: `no checkpoint of sandbox or pod "web-0": relink list shows what there is`},
		"a prefix of a pod's name": {ids: []string{"default/web"}, err: `no checkpoint of sandbox or pod "default/web": relink list shows what there is`},
		"no pod's":                 {ids: []string{"-"}, err: `no checkpoint of sandbox or pod "-": relink list shows what there is`},
	} {
		t.Run(name, func(t *testing.T) {
			records, unreadable, err := populated(t).Select(test.ids)
			read, failed := listed(t, records, unreadable)
			if message(err) != test.err {
				t.Fatalf("Select() = %q, want %q", message(err), test.err)
			}
			if diff := cmp.Diff(test.read, read); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.failed, failed); diff != "" {
				t.Errorf("unreadable (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectTakesAWholeIDThatBeginsAnother(t *testing.T) {
	s := newStore(t)
	save(t, s, record("abc", "eth0"), record("abcd", "eth0"))
	records, unreadable, err := s.Select([]string{"abc"})
	read, failed := listed(t, records, unreadable)
	if diff := cmp.Diff([]string{"abc/eth0"}, read); err != nil || diff != "" || failed != nil {
		t.Errorf("Select() = %v, %v, %v", read, failed, err)
	}
}

func TestSelectFromNothing(t *testing.T) {
	s := newStore(t)
	if records, _, err := s.Select(nil); err != nil || records != nil {
		t.Errorf("all: %v, %v", records, err)
	}
	want := `no checkpoint of sandbox or pod "c1": relink list shows what there is`
	if _, _, err := s.Select([]string{"c1"}); message(err) != want {
		t.Errorf("one: %v, want %s", err, want)
	}
}
