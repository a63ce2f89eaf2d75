package delegate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
)

// code returns the error in the form of CNI.
func code(t *testing.T, err error) *types.Error {
	t.Helper()
	var coded *types.Error
	if !errors.As(err, &coded) {
		t.Fatalf("%v has no code", err)
	}
	return coded
}

// calls are the calls of an IPAM that return only an error.
func calls(i IPAM) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{"DEL": i.Del, "CHECK": i.Check, "STATUS": i.Status, "GC": i.GC}
}

func TestNoIPAMGivesNoAddressesAndFailsNothing(t *testing.T) {
	t.Setenv("CNI_PATH", t.TempDir())
	g, err := IPAM{}.Add(t.Context(), false)
	if diff := cmp.Diff(&current.Result{}, g.Result); err != nil || diff != "" {
		t.Errorf("Add(): %v (-want +got):\n%s", err, diff)
	}
	for command, call := range calls(IPAM{}) {
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestIPAMThatIsNotThereIsNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CNI_PATH", dir)
	config := []byte(`{"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "nowhere"}}`)
	i := IPAM{Type: "nowhere", args: &skel.CmdArgs{StdinData: config}}
	for kind, hint := range map[string]string{"nowhere": "", "relink-ipma": `; did you mean "relink-ipam"?`, "host_local": `; did you mean "host-local"?`} {
		want := `invalid "ipam.type": "` + kind + `": must be a plugin in the runtime's directories, ` + dir + hint
		if got := code(t, IPAM{Type: kind}.Find()); got.Code != 7 || got.Msg != want {
			t.Errorf("Find: %+v, want the configuration to be blamed: %s", got, want)
		}
	}
	const missing = `failed to find plugin "nowhere" in path [`
	for command, call := range calls(i) {
		t.Setenv("CNI_COMMAND", command)
		got := code(t, call(t.Context()))
		if got.Code != 999 || !strings.HasPrefix(got.Msg, "IPAM plugin nowhere: "+missing) {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
