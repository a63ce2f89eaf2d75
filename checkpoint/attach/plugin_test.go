package attach

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

func TestPathsOfTheStoreAreAbsolute(t *testing.T) {
	for name, test := range map[string]struct{ configured, environment, dir, err string }{
		"configured":                          {"/a", "/b", "/a", ""},
		"by the environment":                  {"", "/b", "/b", ""},
		"by default":                          {"", "", checkpoint.DefaultDir, ""},
		"configured, relative":                {"a", "/b", "", `7: invalid "checkpointDir": "a": must be an absolute path`},
		"by the environment, relative":        {"", "./b", "", `4: invalid RELINK_CHECKPOINT_DIR: "./b": must be an absolute path`},
		"by an environment that does not say": {"/a", "b", "/a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(checkpoint.DirEnv, test.environment)
			store, err := netconf.OpenStore(cniplugin.Config{CheckpointDir: test.configured})
			dir := ""
			if err == nil {
				dir = store.Dir()
			}
			if diff := cmp.Diff([]string{test.dir, test.err}, []string{dir, codeAndText(err)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func codeAndText(err error) string {
	if err == nil {
		return ""
	}
	var coded *types.Error
	if !errors.As(err, &coded) {
		return err.Error()
	}
	return fmt.Sprintf("%d: %s", coded.Code, coded.Msg)
}
