package dropin

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// story is a configuration and what is done with it. Unless a step says otherwise,
// host-local and relink-ipam must print the same, and it is what the step expects.
type story struct {
	// ipam are the keys of "ipam" besides type and dataDir; DIR is a directory of files.
	ipam string
	// since is the first version of the specification that has several addresses of a family.
	since string
	steps []step
}

// step is a call for an interface of a container, "ADD c1/eth0".
type step struct {
	call string
	// args are CNI_ARGS.
	args string
	// beside are keys beside "ipam".
	beside string
	// want are the addresses of the result, "error" or "ok".
	want string
	// ours is what relink-ipam does instead, and a comment at the step says why.
	ours string
}

// side is one of the two plugins with a directory of its own.
type side struct {
	plugin, dir, files string
	// results are those of ADDs by container and interface.
	results map[string]string
	// netns is the containers' sandbox.
	netns string
}

// none is no sandbox. An IPAM plugin makes nothing in it.
const none = "/none"

func (s *side) run(t *testing.T, version string, st story, do step) (output []byte, ok bool) {
	t.Helper()
	command, of, _ := strings.Cut(do.call, " ")
	id, ifname, _ := strings.Cut(of, "/")
	beside := do.beside
	if previous := s.results[of]; command == "CHECK" && previous != "" && beside == "" {
		beside = `"prevResult": ` + previous
	}
	if beside != "" {
		beside = ", " + beside
	}
	ipam := strings.ReplaceAll(st.ipam, "DIR", s.files)
	if ipam != "" {
		ipam = ", " + ipam
	}
	config := fmt.Sprintf(`{"cniVersion": %q, "name": "pods", "type": "macvlan", "ipam": {"type": %q, "dataDir": %q%s}%s}`, version, s.plugin, s.dir, ipam, beside)
	output, ok = execute(t, s.plugin, config, "CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_IFNAME="+ifname, "CNI_NETNS="+s.netns, "CNI_NETNS_OVERRIDE=1", "CNI_ARGS="+do.args)
	if command == "ADD" && ok {
		s.results[of] = string(output)
	}
	return output, ok
}

// outcome is what a step's output comes to.
func outcome(t *testing.T, do step, output []byte, ok bool) string {
	t.Helper()
	switch {
	case !ok:
		return "error"
	case strings.HasPrefix(do.call, "ADD"):
		return addresses(t, output)
	}
	return "ok"
}

// tell runs the story's steps with both plugins.
func (st story) tell(t *testing.T, version string) {
	t.Helper()
	files := filesOf(t)
	theirs := &side{"host-local", filepath.Join(t.TempDir(), "not/there"), files, map[string]string{}, none}
	ours := &side{"relink-ipam", filepath.Join(t.TempDir(), "not/there"), files, map[string]string{}, none}
	for i, do := range st.steps {
		if do.want != "error" && strings.HasPrefix(do.call, "CHECK") && version < "0.4.0" {
			do.want, do.ours = "error", "" // There is none yet.
		}
		their, theirOK := theirs.run(t, version, st, do)
		our, ourOK := ours.run(t, version, st, do)
		if got := outcome(t, do, their, theirOK); got != do.want {
			t.Fatalf("step %d, %+v: host-local: %s\n%s", i, do, got, their)
		}
		want := do.want
		if do.ours != "" {
			want = do.ours
		}
		if got := outcome(t, do, our, ourOK); got != want {
			t.Fatalf("step %d, %+v: relink-ipam: %s\n%s", i, do, got, our)
		}
		if do.ours != "" || !theirOK {
			expectCode(t, do, our, ourOK)
			continue
		}
		if diff := cmp.Diff(decoded(t, their), decoded(t, our)); diff != "" {
			t.Errorf("step %d, %+v (-host-local +relink-ipam):\n%s", i, do, diff)
		}
	}
}

// expectCode fails for an error without a code of its own: host-local's are all 999.
func expectCode(t *testing.T, do step, output []byte, ok bool) {
	t.Helper()
	if ok {
		return
	}
	e, _ := decoded(t, output).(map[string]any)
	if code, _ := e["code"].(float64); code == 0 || code == 999 || e["msg"] == "" {
		t.Errorf("%+v: %s", do, output)
	}
}

// filesOf makes the files that configurations name.
func filesOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"resolv.conf": "nameserver 192.0.2.3",
		"all.conf": `# made by hand
; and by others
 # indented
domain example.com
nameserver 192.0.2.3 # the first
	nameserver 2001:db8::53
nameserver
#nameserver 192.0.2.9
search a.example.com b.example.com
search c.example.com
options ndots:5 timeout:2
options rotate
sortlist 192.0.2.0/24

domain example.org`,
		"empty.conf": "",
		"long.conf":  "search " + strings.Repeat("a.example.com ", 10000),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tellAll tells each story in versions of the specification that have it.
func tellAll(t *testing.T, stories map[string]story) {
	for i, name := range slices.Sorted(maps.Keys(stories)) {
		st := stories[name]
		for _, version := range tried(i, versions[slices.Index(versions, max(st.since, versions[0])):]) {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				st.tell(t, version)
			})
		}
	}
}
