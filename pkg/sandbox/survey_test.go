package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
)

// answer is a runtime that gives this answer.
type answer struct {
	told []RuntimeSandbox
	err  error
}

func (a answer) Sandboxes(context.Context) ([]RuntimeSandbox, error) { return a.told, a.err }

var errDown = errors.New("the runtime is down")

// cached writes a cache's entry of a sandbox, as libcni writes it.
func cached(t *testing.T, dir, id, pod, netns string) {
	t.Helper()
	text := fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":"vlan3","netns":%q,
		"cniArgs":[["K8S_POD_NAMESPACE","default"],["K8S_POD_NAME",%q]]}`, id, netns, pod)
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results", "vlan3-"+id+"-eth0"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Real namespaces, a runtime that tells of some of them, and a cache that tells of all.
func TestLookMergesWhatIsTold(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "b"} {
		fresh.At(t, path(name))
		cached(t, dir, "cached-"+name, "old-"+name, path(name))
	}
	pod := func(name string) attachment.Pod {
		return attachment.Pod{Namespace: "default", Name: name, UID: "uid-" + name}
	}
	a := RuntimeSandbox{ContainerID: "id-a", Pod: pod("a"), Ready: true, Netns: path("a")}
	stopped := RuntimeSandbox{ContainerID: "id-stopped", Pod: pod("stopped"), Netns: path("a")}
	gone := RuntimeSandbox{ContainerID: "id-gone", Pod: pod("gone"), Ready: true, Netns: path("gone")}
	onHost := RuntimeSandbox{ContainerID: "id-host", Pod: pod("host"), Ready: true, HostNetwork: true}
	for name, test := range map[string]struct {
		runtime    answer
		want       map[string]string // what is said of a and b
		incomplete string
	}{
		"all that the runtime tells": {
			answer{told: []RuntimeSandbox{a, onHost}},
			map[string]string{"a": "default/a, sandbox id-a, by the runtime", "b": "known to nobody"}, "",
		},
		"the sandbox that is ready has the namespace, whatever the order": {
			answer{told: []RuntimeSandbox{stopped, a, stopped}},
			map[string]string{"a": "default/a, sandbox id-a, by the runtime", "b": "known to nobody"}, "",
		},
		"a stopped sandbox keeps its namespace": {
			answer{told: []RuntimeSandbox{stopped}},
			map[string]string{"a": "default/stopped, sandbox id-stopped, stopped, by the runtime", "b": "known to nobody"}, "",
		},
		"no namespace to be found": {
			answer{told: []RuntimeSandbox{gone}},
			map[string]string{"a": "known to nobody", "b": "known to nobody"}, "",
		},
		"no answer: the cache": {
			answer{err: errDown},
			map[string]string{"a": "default/old-a, sandbox cached-a, by the CNI cache", "b": "default/old-b, sandbox cached-b, by the CNI cache"},
			"the runtime is down",
		},
		"half an answer: the cache for the rest": {
			answer{told: []RuntimeSandbox{a}, err: errDown},
			map[string]string{"a": "default/a, sandbox id-a, by the runtime", "b": "default/old-b, sandbox cached-b, by the CNI cache"},
			"the runtime is down",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSurvey(t.Context(), test.runtime, dir)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range test.want {
				if got := said(s, path(name)); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			text := ""
			if s.Incomplete != nil {
				text = s.Incomplete.Error()
			}
			if text != test.incomplete || s.Complete() != (test.incomplete == "") {
				t.Errorf("incomplete: %q, want %q; complete: %v", text, test.incomplete, s.Complete())
			}
		})
	}
}

// said returns what a survey says of the namespace at the path.
func said(s Survey, path string) string {
	for _, k := range s.Sandboxes {
		if text, ok := strings.CutPrefix(k.String(), path+": "); ok {
			return text
		}
	}
	return "not there"
}

// A torn file of a cache is one more reason to trust no absence.
func TestLookReportsATornCache(t *testing.T) {
	dir := t.TempDir()
	cached(t, dir, "c1", "web", "/nowhere")
	if err := os.WriteFile(filepath.Join(dir, "results", "torn"), []byte(`{"kind":"cniCacheV1",`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := NewSurvey(t.Context(), answer{err: errDown}, dir)
	if err != nil || !errors.Is(s.Incomplete, errDown) || !strings.Contains(s.Incomplete.Error(), "results/torn") {
		t.Errorf("incomplete: %v, %v", s.Incomplete, err)
	}
	if s, err = NewSurvey(t.Context(), answer{}, dir); err != nil || !s.Complete() {
		t.Errorf("the runtime told all, so no cache is asked: %v, %v", s.Incomplete, err)
	}
}

// String describes the sandbox in one line, for people.
func (k NodeSandbox) String() string {
	switch {
	case k.Source == SourceNone:
		return fmt.Sprintf("%s: known to nobody", k.Paths[0])
	case k.Source == SourceRuntime && !k.Ready:
		return fmt.Sprintf("%s: %v, sandbox %s, stopped, by the %s", k.Paths[0], k.Pod, k.ContainerID, k.Source)
	}
	return fmt.Sprintf("%s: %v, sandbox %s, by the %s", k.Paths[0], k.Pod, k.ContainerID, k.Source)
}
