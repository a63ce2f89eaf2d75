package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/selection"
)

// populated returns a store with five sandboxes. Two belong to one pod, because the old one still exists while it is
// being replaced. One belongs to another pod, one to none, and one cannot be read.
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

// nothingMessage returns the message for a name that matches nothing.
func nothingMessage(name, what string) string {
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
		"an ID of none":            {ids: []string{"eeee"}, err: nothingMessage("eeee", "pod or container ID")},
		"one of several of none":   {ids: []string{"aab", "eeee"}, err: nothingMessage("eeee", "pod or container ID")},
		"a pod of two namespaces":  {ids: []string{"web-0"}, err: `"web-0" matches several: default/web-0, other/web-0; name one of them in full`},
		"a prefix of a pod's name": {ids: []string{"default/web"}, err: nothingMessage("default/web", "pod")},
		"no pod's":                 {ids: []string{"-"}, err: nothingMessage("-", "pod or container ID")},
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
	want := nothingMessage("c1", "pod or container ID")
	if _, _, err := s.Select(selection.Selection{Names: []string{"c1"}}); message(err) != want {
		t.Errorf("one: %v, want %s", err, want)
	}
}

// The readable part of a torn checkpoint says whose it is. A missing part matches every limit.
func TestSelectByWhatIsLeftOfATornCheckpoint(t *testing.T) {
	s := newStore(t)
	other := podRecord("bbbb", "eth0", "lab", "web-0")
	other.Attachment.Network, other.Interface.Parents[0].Name = "storage", "eth7"
	save(t, s, podRecord("aaaa", "eth0", "shop", "web-0"), other, podRecord("cccc", "eth0", "shop", "db"))
	b, err := os.ReadFile(filepath.Join(s.Dir(), "aaaa", "eth0.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "aaaa/eth0.json", string(b[:bytes.Index(b, []byte(`"cni"`))]))
	write(t, s, "dddd/eth0.json", "")
	for name, test := range map[string]struct {
		by           selection.Selection
		read, failed []string
	}{
		"its namespace":    {selection.Selection{Namespace: "shop"}, []string{"cccc/eth0"}, []string{"aaaa/eth0", "dddd/eth0"}},
		"another one":      {selection.Selection{Namespace: "lab"}, []string{"bbbb/eth0"}, []string{"dddd/eth0"}},
		"another network":  {selection.Selection{Network: "storage"}, []string{"bbbb/eth0"}, []string{"dddd/eth0"}},
		"another parent":   {selection.Selection{Parent: "eth7"}, []string{"bbbb/eth0"}, []string{"dddd/eth0"}},
		"its pod":          {selection.Selection{Names: []string{"shop/web-0"}}, nil, []string{"aaaa/eth0"}},
		"by container IDs": {selection.Selection{Names: []string{"dd"}}, nil, []string{"dddd/eth0"}},
	} {
		t.Run(name, func(t *testing.T) {
			records, unreadable, err := s.Select(test.by)
			read, failed := listed(t, records, unreadable)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(failed)
			slices.Sort(test.failed)
			if diff := cmp.Diff(test.read, read); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.failed, failed); diff != "" {
				t.Errorf("unreadable (-want +got):\n%s", diff)
			}
		})
	}
	if _, _, err := s.Select(selection.Selection{Names: []string{"web-0"}}); !errors.Is(err, selection.ErrAmbiguous) {
		t.Errorf("web-0: %v, want that it is ambiguous: the torn one has the name too", err)
	}
}
