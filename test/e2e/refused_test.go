package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

func init() { commands["refused"] = cmdRefused }

// refused CODE PATTERN CONFIG [VARIABLE=VALUE]... expects that an ADD is refused with one error of this code. The
// error's message must match, and the ADD must leave nothing behind. CONFIG is merged into a configuration that would
// work.
func cmdRefused(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 3, "refused CODE PATTERN CONFIG [VARIABLE=VALUE]...")
	code, err := strconv.Atoi(args[0])
	check(ts, err)
	before := traces(ts)
	plugin, config := mergedConfig(args[2])
	cmd := exec.Command(filepath.Join(ts.Getenv("CNI_PATH"), plugin))
	cmd.Env = append([]string{
		"PATH=" + ts.Getenv("PATH"), "CNI_PATH=" + ts.Getenv("CNI_PATH"),
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=refused", "CNI_NETNS=/run/netns/p", "CNI_IFNAME=eth0",
	}, args[3:]...)
	cmd.Stdin = strings.NewReader(config)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err == nil {
		ts.Fatalf("%s is not refused:\n%s", args[2], stdout.String())
	}
	check(ts, oneError(stdout.Bytes(), code, args[1]))
	if stderr.Len() > 0 {
		ts.Fatalf("more is said on stderr: %s", stderr.String())
	}
	if after := traces(ts); after != before {
		ts.Fatalf("something is left behind:\n%s\nbefore:\n%s", after, before)
	}
}

func oneError(stdout []byte, code int, pattern string) error {
	var said struct {
		Code    int
		Msg     string
		Details string
	}
	if err := json.Unmarshal(stdout, &said); err != nil {
		return fmt.Errorf("not one error in JSON: %w\n%s", err, stdout)
	}
	if matches, err := regexp.MatchString(pattern, said.Msg); err != nil || !matches || said.Code != code {
		return fmt.Errorf("code %d: %s: wanted code %d: %s", said.Code, said.Msg, code, pattern)
	}
	return nil
}

// mergedConfig returns the plugin and the configuration. Text that is no JSON is returned unchanged.
func mergedConfig(changes string) (plugin, config string) {
	merged := map[string]any{
		"cniVersion": "1.1.0", "name": "t", "type": "relink-macvlan", "master": "eth0",
		"ipam": map[string]any{"type": "host-local", "subnet": "10.3.0.0/24"},
	}
	if err := json.Unmarshal([]byte(changes), &merged); err != nil {
		return "relink-macvlan", changes
	}
	b, _ := json.Marshal(merged)
	return merged["type"].(string), string(b)
}

// traces returns everything that a failed ADD could leave: devices, addresses, checkpoints.
func traces(ts *testscript.TestScript) string {
	var all strings.Builder
	addDevices := func() error {
		devices, err := net.Interfaces()
		for _, device := range devices {
			fmt.Fprintf(&all, "  %s\n", device.Name)
		}
		return err
	}
	fmt.Fprintln(&all, "host:")
	check(ts, addDevices())
	for _, pod := range []string{"p", "other"} {
		fmt.Fprintf(&all, "%s:\n", pod)
		check(ts, within(pod, addDevices))
	}
	for _, dir := range []string{"/run/relink", "/var/lib/cni"} {
		fmt.Fprintf(&all, "%s:\n", dir)
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { // The directory may not exist yet.
			if name := filepath.Base(path); strings.HasSuffix(name, ".json") || strings.HasPrefix(name, "10.") || strings.HasPrefix(name, "fd") {
				fmt.Fprintf(&all, "  %s\n", path)
			}
			return nil
		})
	}
	if _, err := os.Stat("/run/relink/checkpoints/refused"); err == nil {
		ts.Fatalf("the sandbox's checkpoint directory is left behind")
	}
	return all.String()
}
