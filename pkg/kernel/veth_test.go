package kernel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// The host's end gets the first alternative name that no device has.
func TestAPairHasTheFirstFreeAlternativeName(t *testing.T) {
	w := newFixture(t)
	for number, want := range []string{"rlp0", "rlp1", ""} {
		name := fmt.Sprintf("rl%d", number)
		pair := Pair{HostName: name, Name: fmt.Sprintf("host%d", number), MAC: "02:00:00:00:00:01", MTU: 1500, AltNames: []string{"rlp0", "rlp1"}}
		if err := CreatePair(w.host, w.sandbox, pair); err != nil {
			t.Fatal(err)
		}
		shown := fresh.IP(t, "", "link show dev "+name)
		if strings.Contains(shown, "altname") != (want != "") || !strings.Contains(shown, want) {
			t.Errorf("%s, want the alternative name %q", shown, want)
		}
	}
}
