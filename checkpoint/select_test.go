package checkpoint

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/selection"
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

// none is the message for a name of nothing.
func none(name, what string) string {
	return fmt.Sprintf("%q matches nothing: there is no such %s; relink list shows what there is", name, what)
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
		"a prefix of two":          {ids: []string{"aa"}, err: `"aa" matches several: aaaa1111 (default/web-0), aabb2222 (default/web-0); name one of them in full`},
		"a prefix, one unreadable": {ids: []string{"aabb2222", "c"}, err: `"c" matches several: cccc3333 (other/web-0), cnitool-1; name one of them in full`},
		"an ID of none":            {ids: []string{"eeee"}, err: none("eeee", "pod or container ID")},
		"one of several of none":   {ids: []string{"aab", "eeee"}, err: none("eeee", "pod or container ID")},
		"a pod of two namespaces":  {ids: []string{"web-0"}, err: `"web-0" matches several: default/web-0, other/web-0; name one of them in full`},
		"a prefix of a pod's name": {ids: []string{"default/web"}, err: none("default/web", "pod")},
		"no pod's":                 {ids: []string{"-"}, err: none("-", "pod or container ID")},
	} {
		t.Run(name, func(t *testing.T) {
			records, unreadable, err := populated(t).Select(selection.Selection{Names: test.ids})
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
	records, unreadable, err := s.Select(selection.Selection{Names: []string{"abc"}})
	read, failed := listed(t, records, unreadable)
	if diff := cmp.Diff([]string{"abc/eth0"}, read); err != nil || diff != "" || failed != nil {
		t.Errorf("Select() = %v, %v, %v", read, failed, err)
	}
}

func TestSelectTakesAWholeIDThatBeginsAnotherUnreadableToo(t *testing.T) {
	s := newStore(t)
	write(t, s, "abc/eth0.json", "")
	save(t, s, record("abcd", "eth0"))
	records, unreadable, err := s.Select(selection.Selection{Names: []string{"abc"}})
	if err != nil || len(records) != 0 || len(unreadable) != 1 {
		t.Errorf("Select() = %v, %v, %v, want the unreadable one of abc", records, unreadable, err)
	}
}

func TestSelectOfAnEmptyIDIsAnError(t *testing.T) {
	s := newStore(t)
	save(t, s, record("abc", "eth0"))
	if records, _, err := s.Select(selection.Selection{Names: []string{""}}); err == nil {
		t.Errorf("Select(\"\") = %d records, want an error", len(records))
	}
}

func TestSelectFromNothing(t *testing.T) {
	s := newStore(t)
	if records, _, err := s.Select(selection.Selection{}); err != nil || records != nil {
		t.Errorf("all: %v, %v", records, err)
	}
	want := none("c1", "pod or container ID")
	if _, _, err := s.Select(selection.Selection{Names: []string{"c1"}}); message(err) != want {
		t.Errorf("one: %v, want %s", err, want)
	}
}
