package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

// describePartial describes the readable part of the bytes in short form.
func describePartial(b []byte) string {
	r := decodePartial(b)
	var has []string
	note := func(is bool, what string) {
		if is {
			has = append(has, what)
		}
	}
	note(r.Attachment != attachment.Key{}, "key")
	note(r.Pod != attachment.Pod{}, "pod")
	note(r.Namespace != attachment.Namespace{}, "namespace")
	note(r.Interface.Link.MAC != "", "link")
	note(len(r.Interface.Parents) > 0, fmt.Sprintf("%d parents", len(r.Interface.Parents)))
	note(len(r.Interface.Addresses) > 0, fmt.Sprintf("%d addresses", len(r.Interface.Addresses)))
	note(len(r.Interface.Routes) > 0, fmt.Sprintf("%d routes", len(r.Interface.Routes)))
	note(len(r.CNI.Config) > 0, "cni")
	note(r.Writer != "", "writer")
	return strings.Join(has, ", ")
}

func TestWhatIsLeftOfATornCheckpoint(t *testing.T) {
	b, err := Encode(dualStack())
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	// upTo returns the text before the n-th what.
	upTo := func(what string, n int) string {
		at := 0
		for range n {
			next := strings.Index(text[at:], what)
			if next < 0 {
				t.Fatalf("%q is not %d times in:\n%s", what, n, text)
			}
			at += next + len(what)
		}
		return text[:at-len(what)]
	}
	const identified = "key, pod, namespace"
	for name, test := range map[string]struct{ torn, left string }{
		"nothing":                       {"", ""},
		"no JSON":                       {"\x00\x00\x00\x00", ""},
		"in the key":                    {upTo(`"ifName"`, 1), ""},
		"behind the key":                {upTo(`"pod"`, 1), "key"},
		"in the namespace":              {upTo(`"cookie"`, 1), "key, pod"},
		"in the number of the cookie":   {upTo(`4098`, 1) + "40", "key, pod"},
		"behind the namespace":          {upTo(`"interface": {`, 1), identified},
		"in the link":                   {upTo(`"mac"`, 1), identified},
		"behind the first parent":       {upTo(`"bond"`, 1), identified + ", link"},
		"in the second address":         {upTo(`"peer"`, 1), identified + ", link, 2 parents"},
		"in the first route":            {upTo(`"protocol": 3`, 1), identified + ", link, 2 parents, 3 addresses"},
		"zeros instead of the end":      {upTo(`"cni"`, 1) + strings.Repeat("\x00", 100), identified + ", link, 2 parents, 3 addresses, 6 routes"},
		"in the CNI configuration":      {upTo(`"result"`, 1), identified + ", link, 2 parents, 3 addresses, 6 routes"},
		"whole, with an unknown member": {strings.Replace(text, `"writer"`, `"wrote": {"a": [1]}, "writer"`, 1), identified + ", link, 2 parents, 3 addresses, 6 routes, cni, writer"},
		"whole, with a wrong link":      {strings.Replace(text, `"link": {`, `"link": 7, "was": {`, 1), identified + ", cni, writer"},
	} {
		if got := describePartial([]byte(test.torn)); got != test.left {
			t.Errorf("%s: %q, want %q", name, got, test.left)
		}
	}
}

// Wherever the file is torn, the readable part is what was there, and never half of an identity.
func TestEveryTearLeavesWhatWasThere(t *testing.T) {
	was := fullRecord()
	b, err := Encode(was)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(b); n += 7 {
		left := decodePartial(b[:n])
		if left.Namespace != (attachment.Namespace{}) && left.Namespace != was.Namespace {
			t.Fatalf("after %d bytes: namespace %+v", n, left.Namespace)
		}
		i := left.Interface
		if len(i.Parents) > 0 && !cmp.Equal(i.Parents, was.Interface.Parents, sameRecord) {
			t.Fatalf("after %d bytes: parents %+v", n, i.Parents)
		}
		if !cmp.Equal(i.Addresses, was.Interface.Addresses[:len(i.Addresses)], sameRecord) || !cmp.Equal(i.Routes, was.Interface.Routes[:len(i.Routes)], sameRecord) {
			t.Fatalf("after %d bytes: %+v", n, i)
		}
	}
}

func TestListHasWhatIsLeft(t *testing.T) {
	s := newStore(t)
	r := podRecord("c1", "eth0", "shop", "web-0")
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "c1/eth0.json", string(b[:len(b)/2]))
	write(t, s, "c2/eth0.json", string(b)) // This file is another attachment's. It says nothing of the name it has here.
	write(t, s, "c3/eth0.json", "")
	_, unreadable, err := s.List()
	if err != nil || len(unreadable) != 3 {
		t.Fatal(unreadable, err)
	}
	for i, want := range []attachment.Namespace{r.Namespace, {}, {}} {
		if got := unreadable[i].Partial.Namespace; got != want {
			t.Errorf("%s: %+v, want %+v", unreadable[i].ContainerID, got, want)
		}
	}
}

func TestForgetReadKeepsWhatWasMadeAnew(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"), record("c2", "eth0"), record("c3", "eth0"), record("c4", "eth0"))
	records, _, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	anew, elsewhere := records[1], records[2]
	anew.CapturedAt = anew.CapturedAt.AddDate(0, 0, 1)
	elsewhere.Namespace.Cookie++
	save(t, s, anew, elsewhere)
	if err := s.Forget("c4", "eth0"); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, true} {
		if err := s.ForgetListed(records[i], nil); (err == nil) != want || err != nil && !errors.Is(err, ErrWrittenAnew) {
			t.Errorf("%s: %v, want %v", records[i].Attachment, err, want)
		}
	}
	expectFiles(t, s, "c1/", "c2/", "c2/eth0.json", "c3/", "c3/eth0.json", "c4/")
}

func TestForgetUnreadableKeepsWhatWasWrittenAnew(t *testing.T) {
	s := newStore(t)
	write(t, s, "c1/eth0.json", "{")
	write(t, s, "c2/eth0.json", "{")
	write(t, s, "c3/eth0.json", "{")
	_, unreadable, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, record("c2", "eth0"))
	if err := os.Remove(filepath.Join(s.Dir(), "c3/eth0.json")); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		if err := s.ForgetListed(Record{}, &unreadable[i]); (err == nil) != want || err != nil && !errors.Is(err, ErrWrittenAnew) {
			t.Errorf("%s: %v, want %v", unreadable[i].ContainerID, err, want)
		}
	}
	expectFiles(t, s, "c1/", "c2/", "c2/eth0.json", "c3/")
}

// What an operator has put in the place of a checkpoint is forgotten, and is never read to its end.
func TestForeignFilesAreTornAndCanBeForgotten(t *testing.T) {
	s := newStore(t)
	write(t, s, "c1/eth0.json", "{")
	write(t, s, "c2/eth0.json", "")
	if err := errors.Join(os.Symlink("../c1/eth0.json", filepath.Join(s.Dir(), "c1/net1.json")), os.Truncate(filepath.Join(s.Dir(), "c2/eth0.json"), 1<<40)); err != nil {
		t.Fatal(err)
	}
	_, unreadable, err := s.List()
	if err != nil || len(unreadable) != 3 {
		t.Fatal(unreadable, err)
	}
	for _, u := range unreadable {
		if err := s.ForgetListed(Record{}, &u); err != nil {
			t.Error(u.IfName, err)
		}
	}
	expectFiles(t, s, "c1/", "c2/")
}
