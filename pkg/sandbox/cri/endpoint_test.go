package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/sandbox"
)

func TestFind(t *testing.T) {
	for name, test := range map[string]struct {
		env     map[string]string
		files   map[string]string // regular files below the root
		sockets []string          // below the root
		want    string
		err     string
	}{
		"the environment first": {
			map[string]string{endpointEnv: "unix:///run/a.sock"}, map[string]string{configFile: "runtime-endpoint: unix:///run/b.sock"},
			defaultSockets, "[unix:///run/a.sock]", "",
		},
		"then crictl's file": {
			nil, map[string]string{configFile: "timeout: 2\nruntime-endpoint: \"unix:///run/b.sock\"\n"},
			defaultSockets, "[unix:///run/b.sock]", "",
		},
		"a path in crictl's file": {
			nil, map[string]string{configFile: "runtime-endpoint: /run/b.sock"}, nil, "[unix:///run/b.sock]", "",
		},
		"a file without an endpoint": {
			nil, map[string]string{configFile: "timeout: 2\n"}, []string{"/run/crio/crio.sock"}, "[unix://ROOT/run/crio/crio.sock]", "",
		},
		"all default sockets that exist": {
			nil, nil, []string{"/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"},
			"[unix://ROOT/run/k3s/containerd/containerd.sock unix://ROOT/run/crio/crio.sock]", "",
		},
		"a file is no socket": {
			nil, map[string]string{"/run/containerd/containerd.sock": ""}, nil, "[]", "no container runtime found: there is no socket at " + strings.Join(defaultSockets, ", ") +
				"; name the runtime's socket as runtime-endpoint in /etc/crictl.yaml, or in CONTAINER_RUNTIME_ENDPOINT; in a pod, mount the directory of the socket, as the example reclaim does",
		},
		"not YAML": {
			nil, map[string]string{configFile: "runtime-endpoint: [a"}, nil, "[]", "crictl's configuration ROOT/etc/crictl.yaml: yaml: line 1: did not find expected ',' or ']'",
		},
		"no socket at all": {
			map[string]string{endpointEnv: "tcp://127.0.0.1:1"}, nil, nil, "[]",
			`CONTAINER_RUNTIME_ENDPOINT: "tcp://127.0.0.1:1" is not the socket of a container runtime: write it as unix:///run/containerd/containerd.sock`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			in := func(text string) string { return strings.ReplaceAll(text, "ROOT", root) }
			for name, text := range test.files {
				write(t, filepath.Join(root, name), text)
			}
			for _, socket := range test.sockets {
				write(t, filepath.Join(root, socket)+".partial", "") // It makes the directory.
				listen(t, filepath.Join(root, socket))
			}
			got, err := finder{getenv: func(key string) string { return in(test.env[key]) }, root: root}.find()
			if err != nil {
				got = nil
			}
			if fmt.Sprint(got) != in(test.want) || message(err) != in(test.err) {
				t.Errorf("%v, %q; want %s, %q", got, message(err), in(test.want), in(test.err))
			}
			if none := strings.HasPrefix(test.err, "no container runtime found"); errors.Is(err, sandbox.ErrNoRuntime) != none {
				t.Errorf("ErrNoRuntime: %v, want %v", !none, none)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
