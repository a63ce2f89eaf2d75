package checkpoint

import (
	"os"
	"testing"
)

func TestSelectTakesAWholeIDThatBeginsAnotherUnreadableToo(t *testing.T) {
	s := newStore(t)
	write(t, s, "abc/eth0.json", "")
	save(t, s, record("abcd", "eth0"))
	records, unreadable, err := s.Select([]string{"abc"})
	if err != nil || len(records) != 0 || len(unreadable) != 1 {
		t.Errorf("Select() = %v, %v, %v, want the unreadable one of abc", records, unreadable, err)
	}
}

func TestSelectOfAnEmptyIDIsAnError(t *testing.T) {
	s := newStore(t)
	save(t, s, record("abc", "eth0"))
	if records, _, err := s.Select([]string{""}); err == nil {
		t.Errorf("Select(\"\") = %d records, want an error", len(records))
	}
}

func TestEncodeRefusesANameThatJSONCannotKeep(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"net\xff", "\xff\xff\xff\xff\xff\xff"} {
		r := record("c1", name)
		if err := s.Save(r); err != nil {
			continue
		}
		if _, err := s.Load("c1", name); err != nil {
			t.Errorf("saved %q, but: %v", name, err)
		}
	}
}

func TestUnlockOfALockWhoseDirectoryWasReplacedLeavesTheNewLockAlone(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	if err := os.RemoveAll(s.sandboxDir("c1")); err != nil {
		t.Fatal(err)
	}
	defer lock(t, s, "c1")()
	unlock()
	expectBusy(t, s, "c1")
}
