package malformed

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

// bin is where the programs are: they are run as a runtime or an operator runs them.
var bin string

func TestMain(m *testing.M) {
	dir, err := filepath.Abs("../../bin/test")
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		err = binaries.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	bin = dir
	fresh.Main(m)
}

// node is a host with a parent, lan0, a sandbox, and directories in which nothing is yet.
type node struct {
	dir, netns string
}

func newNode(t *testing.T) node {
	t.Helper()
	fresh.IP(t, "", "link add lan0 type veth peer name lan1")
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	fresh.Run(t, "", "ip link set lan0 up; ip link set lan1 up") // An ADD waits for a link.
	return node{dir: t.TempDir(), netns: fresh.Sandbox(t)}
}

// answer is what a plugin says: code 0 for success.
type answer struct {
	Code uint
	Msg  string
}

// call runs the plugin as a runtime does. variables are added to the environment.
func (n node) call(t *testing.T, plugin, command, config string, variables ...string) answer {
	t.Helper()
	return n.callAs(t, 0, plugin, command, config, variables...)
}

func (n node) environment(command string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=" + n.netns, "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0", "RELINK_CHECKPOINT_DIR=" + n.dir + "/checkpoints",
	}
}

// add calls an ADD of relink-macvlan, and returns what it prints.
func (n node) add(config string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(bin, "relink-macvlan"))
	cmd.Env, cmd.Stdin = n.environment("ADD"), strings.NewReader(config)
	return cmd.Output()
}

// callAs is call by a user.
func (n node) callAs(t *testing.T, uid uint32, plugin, command, config string, variables ...string) answer {
	t.Helper()
	program := filepath.Join(bin, plugin)
	if uid != 0 {
		program = forAll(t, program)
	}
	cmd := exec.Command(program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if cmd.Dir = n.dir; uid != 0 {
		cmd.Dir = "/" // The test's own is closed to others.
	}
	cmd.Env = append(n.environment(command), variables...)
	cmd.Stdin = strings.NewReader(config)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.Run() == nil {
		return answer{}
	}
	var said answer
	if err := json.Unmarshal([]byte(stdout.String()), &said); err != nil || said.Code == 0 {
		t.Fatalf("%s %s says no error in JSON: %v\n%s%s", plugin, command, err, &stdout, &stderr)
	}
	if strings.Contains(stderr.String(), "panic") {
		t.Errorf("%s %s: %s", plugin, command, &stderr)
	}
	return said
}

// forAll copies a program to where every user can execute it, and returns the copy's path.
func forAll(t *testing.T, program string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "malformed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, err := os.ReadFile(program)
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(dir+"/program", b, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/program"
}

// expectNothing says that nothing is left: no file, no device.
func (n node) expectNothing(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(n.dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == ".detaching" {
			return filepath.SkipDir // What a DEL notes there counts for two minutes.
		}
		// A lock and an empty directory remember nothing.
		if err == nil && !entry.IsDir() && entry.Type().IsRegular() && filepath.Ext(path) != ".lock" {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	var here, there []net.Interface // There is lo, and here are lan0 and lan1, too.
	var hereErr, thereErr error
	if in := fresh.In(n.netns, func() { there, thereErr = net.Interfaces() }); errors.Join(in, thereErr) != nil || len(there) != 1 {
		t.Errorf("left in the sandbox: %v, %v, %v", there, in, thereErr)
	}
	if here, hereErr = net.Interfaces(); hereErr != nil || len(here) != 3 {
		t.Errorf("left on the host: %v, %v", here, hereErr)
	}
}

// jargon is what the languages that relink is written in say to programmers.
var jargon = regexp.MustCompile(`json:|strconv|unmarshal|netip\.|ParseAddr|ParsePrefix|reflect|panic|runtime error|Go (value|struct)|\bu?int(8|16|32|64)?\b|\[\]string|map\[|struct ?\{|interface ?\{|%!|<nil>|cniplugin|jsontext|0x[0-9a-f]{6}`)

// given is the value in a message, in quotation marks or not.
var given = regexp.MustCompile(`^(?:IPAM plugin [a-z-]+: )?invalid "?[^" ]+"?: ("(?:[^"\\]|\\.)*"|\S+): `)

// expectReadable holds each message to what is asked of all.
func expectReadable(t *testing.T, msg string) {
	t.Helper()
	if strings.Contains(msg, "\n") || len(msg) > 300 || msg == "" {
		t.Errorf("not one short line, but %d bytes: %s", len(msg), msg)
	}
	if found := jargon.FindString(msg); found != "" {
		t.Errorf("%q means nothing to an operator: %s", found, msg)
	}
	if m := given.FindStringSubmatch(msg); m != nil {
		if value := strings.Trim(m[1], `"`); len(value) > 3 && value != "missing" && value != "true" && strings.Count(msg, value) > 1 {
			t.Errorf("the value is there twice: %s", msg)
		}
	}
}
