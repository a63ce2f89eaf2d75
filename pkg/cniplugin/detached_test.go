package cniplugin

import (
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// A pod can be detached whatever somebody has made of the configuration since.
func TestReadDetachedPassesOverWhatADelDoesNotNeed(t *testing.T) {
	for in, test := range map[string]struct {
		name, ipam, dir string
		err, dirErr     coded
	}{
		`{"name": "pods", "ipam": {"type": "x"}, "checkpointDir": "/x"}`:                      {name: "pods", ipam: "x", dir: "/x"},
		`{"name": "pods", "vlna": 3, "mtu": "x", "master": {}, "dns": 7, "runtimeConfig": 1}`: {name: "pods"},
		`{"NAME": "pods", "Ipam": {"Type": "x"}, "checkpointdir": "/x"}`:                      {name: "pods", ipam: "x", dir: "/x"},
		`{"name": "a", "name": "pods"}`:                                                       {name: "pods"},
		"{\"name\": \"pods\", \"master\": \"\xff\"}":                                          {name: "pods"},
		`{"name": "pods", "ipam": null}`:                                                      {name: "pods"},
		`{"name": "pods", "checkpointDir": null}`:                                             {name: "pods"},
		`{"name": "pods", "checkpointDir": ["/x"]}`:                                           {name: "pods", dirErr: coded{7, `invalid "checkpointDir": ["/x"]: must be a string`}},
		`{"name": 7}`:                        {err: coded{7, `invalid "name": 7: must be a string: put it in quotation marks`}},
		`{"name": "pods", "ipam": "static"}`: {err: coded{7, `invalid "ipam": "static": must be an object: put its keys in { }`}},
		`{"name": "pods"`:                    {err: coded{6, "network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing"}},
	} {
		read, err := ReadDelConfig([]byte(in))
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" || err != nil {
			if diff != "" {
				t.Errorf("%s (-want +got):\n%s", in, diff)
			}
			continue
		}
		config, err := read.Config()
		if diff := cmp.Diff(test.dirErr, code(t, err)); diff != "" {
			t.Errorf("%s: checkpointDir (-want +got):\n%s", in, diff)
		}
		if config.Name != test.name || config.IPAM.Type != test.ipam || config.CheckpointDir != test.dir {
			t.Errorf("%s: %+v", in, config)
		}
	}
}

func TestWhoIsNotRootIsTold(t *testing.T) {
	const hint = " (relink-macvlan needs root and runs as user 1000)"
	for code, want := range map[uint]string{
		types.ErrIOFailure: "denied" + hint, types.ErrInternal: "denied" + hint, types.ErrPluginNotAvailable: "denied" + hint,
		types.ErrInvalidNetworkConfig: "denied", types.ErrInvalidEnvironmentVariables: "denied", types.ErrDecodingFailure: "denied",
		types.ErrIncompatibleCNIVersion: "denied",
	} {
		err := types.NewError(code, "denied", "details")
		if got := addRootHint(err, "relink-macvlan", 1000); got.Msg != want || got.Code != code || got.Details != "details" {
			t.Errorf("code %d: %+v, want %s", code, got, want)
		}
		if got := addRootHint(err, "relink-macvlan", 0); got.Msg != "denied" {
			t.Errorf("as root, code %d: %+v", code, got)
		}
	}
}

func TestALongValueIsCut(t *testing.T) {
	long := make([]byte, 10000)
	for i := range long {
		long[i] = 'x'
	}
	for name, err := range map[string]error{
		"a value":     ConfigError("mtu", string(long), "must be shorter"),
		"as written":  ConfigError("mtu", RawValue(long), "must be shorter"),
		"a key":       keyError(string(long), "remove it"),
		"a variable":  EnvError("CNI_ARGS", string(long), "must be shorter"),
		"two bytes":   ConfigError("mtu", "xäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöüäöü", "must be shorter"),
		"two lines":   ConfigError("mtu", RawValue("{\n  \"a\":\t1\n}"), "must be shorter"),
		"not a value": ConfigError("mtu", Missing, "must be there"),
	} {
		msg := code(t, err).Msg
		if len(msg) > 200 {
			t.Errorf("%s: %d bytes", name, len(msg))
		}
		for _, r := range msg {
			if r == '\n' || r == '\t' || r == '\uFFFD' {
				t.Errorf("%s: %q", name, msg)
			}
		}
	}
}
