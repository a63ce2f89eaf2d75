package boot

import (
	"regexp"
	"testing"
)

func TestIDIsTheKernels(t *testing.T) {
	first, err := ID()
	if err != nil || !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(first) {
		t.Errorf("ID() = %q, %v", first, err)
	}
	if again, err := ID(); again != first || err != nil {
		t.Errorf("and then %q, %v", again, err)
	}
}

func TestAFailureIsNotRemembered(t *testing.T) {
	usual := path
	t.Cleanup(func() { path = usual })
	known.Store(nil)
	path = "/missing"
	if id, err := ID(); err == nil {
		t.Errorf("ID() = %q without a file", id)
	}
	path = usual
	if id, err := ID(); err != nil || id == "" {
		t.Errorf("and then %q, %v", id, err)
	}
}
