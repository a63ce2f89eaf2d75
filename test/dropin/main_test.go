package dropin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

// bin is where the plugins are, as they are released.
var bin string

func TestMain(m *testing.M) {
	dir, err := filepath.Abs("../../bin/test")
	bin = dir
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		err = binaries.Build(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fresh.Main(m)
}

// versions are all of the specification.
var versions = []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// tried are the versions in which the i-th of many cases runs: the newest, and of the others one in turn. make test-long takes all.
func tried(i int, all []string) []string {
	if os.Getenv("RELINK_LONG") != "" {
		return all
	}
	others := len(all) - 1
	return []string{all[i%others], all[others]}
}

// execute runs a plugin and returns what it prints, and whether it succeeds.
func execute(t *testing.T, plugin, config string, env ...string) (output []byte, ok bool) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, plugin))
	cmd.Env = append(append(os.Environ(), "CNI_PATH="+bin), env...)
	cmd.Dir = t.TempDir()
	cmd.Stdin = strings.NewReader(config)
	output, err := cmd.Output()
	if err != nil && len(output) == 0 {
		t.Fatalf("%s prints no error: %v\n%s", plugin, err, config)
	}
	return output, err == nil
}

// decoded is the JSON as Go has it, nil for none.
func decoded(t *testing.T, b []byte) any {
	t.Helper()
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// addresses are those of a result of any version, with spaces between them.
func addresses(t *testing.T, result []byte) string {
	t.Helper()
	var r struct {
		IPs      []struct{ Address string }
		IP4, IP6 struct{ IP string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	all := []string{r.IP4.IP, r.IP6.IP}
	for _, ip := range r.IPs {
		all = append(all, ip.Address)
	}
	return strings.Join(strings.Fields(strings.Join(all, " ")), " ")
}
