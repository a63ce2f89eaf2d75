package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// TestNodeStories runs an operator's commands on a node as typed, and compares the answers. Each story has a host of
// its own: empty stores, and a network namespace with the NICs lan0, san0 and wan0, which are veth pairs.
func TestNodeStories(t *testing.T) {
	bin, err := filepath.Abs("../../bin/test")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(binaries.Build(bin), binaries.Build(bin+"-failpoint", "failpoint")); err != nil {
		t.Fatal(err)
	}
	if *update {
		writeAnswers(t, filepath.Join("testdata", "node"))
	}
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", "node"),
		Setup: func(env *testscript.Env) error { return setupNode(env, bin) },
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"answers": cmdNodeAnswers, "host": cmdHost, "sandbox": cmdSandbox, "remove": cmdRemove, "in": cmdIn, "attach": cmdAttach, "detach": cmdDetach,
			"attach-many": cmdAttachMany, "fits": cmdFits, "reserved": cmdReserved, "seen-earlier": cmdSeenEarlier,
			"write": cmdWrite, "cut-short": cmdCutShort,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func setupNode(env *testscript.Env, bin string) error {
	host := filepath.Join(env.WorkDir, "host")
	if err := fresh.Make(host); err != nil {
		return err
	}
	env.Defer(func() { fresh.Remove(env.T().(testing.TB), host) })
	env.Defer(func() {
		testnode.Purgeable(env.T().(testing.TB), checkpoint.OpenStore(filepath.Join(env.WorkDir, "checkpoints")))
	})
	env.Setenv("BIN", bin)
	env.Setenv("TZ", "UTC")
	env.Setenv("RELINK_AGENT_SOCKET", filepath.Join(env.WorkDir, "none.sock"))
	env.Setenv("RELINK_IPAM_DIR", filepath.Join(env.WorkDir, "leases"))
	env.Setenv("RELINK_CHECKPOINT_DIR", filepath.Join(env.WorkDir, "checkpoints"))
	for _, dir := range []string{"leases", "checkpoints", "cache"} {
		if err := os.Mkdir(filepath.Join(env.WorkDir, dir), 0o700); err != nil {
			return err
		}
	}
	return runIn(host, exec.Command("sh", "-ec", `
		for nic in lan san wan; do
			ip link add ${nic}0 type veth peer name ${nic}1
			ip link set ${nic}0 up
			ip link set ${nic}1 up
		done`))
}

// runIn runs the command in the namespace at the path.
func runIn(path string, cmd *exec.Cmd) error {
	var out bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = &out, &out
	}
	var failed error
	if err := fresh.In(path, func() { failed = cmd.Run() }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), failed, &out)
	}
	return nil
}

// host LINE runs a shell command line in the host.
func cmdHost(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(runIn(ts.MkAbs("host"), exec.Command("sh", "-ec", strings.Join(args, " "))))
}

// in SANDBOX LINE runs a shell command line in the sandbox.
func cmdIn(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(runIn(ts.MkAbs(args[0]), exec.Command("sh", "-ec", strings.Join(args[1:], " "))))
}

// sandbox NAME... makes sandboxes. They are removed at the end of the story.
func cmdSandbox(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		path := ts.MkAbs(name)
		ts.Check(fresh.Make(path))
		ts.Defer(func() { _ = removeNamespace(path) })
	}
}

// remove SANDBOX removes a sandbox without any DEL.
func cmdRemove(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(removeNamespace(ts.MkAbs(args[0])))
}

func removeNamespace(path string) error {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return exec.Command("sh", "-c", `umount -l "$0" 2>/dev/null; rm -f "$0"`, path).Run()
}

// attach SANDBOX CONTAINER IFNAME NAMESPACE/POD [NETWORK=lan [MASTER=lan0]] runs relink-macvlan's ADD as a runtime
// does. detach is its DEL.
func cmdAttach(ts *testscript.TestScript, neg bool, args []string) { callMacvlan(ts, neg, "ADD", args) }
func cmdDetach(ts *testscript.TestScript, neg bool, args []string) { callMacvlan(ts, neg, "DEL", args) }

// subnets are the addresses that the networks of the stories give.
var subnets = map[string]string{"lan": "10.3.0.0/22", "san": "10.4.0.0/29", "wan": "10.5.0.0/24"}

// cmdAttachMany is attach-many COUNT NETWORK NAMESPACE. It makes COUNT attachments. One pod in ten has two of them.
func cmdAttachMany(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	network, namespace := args[1], args[2]
	for i, pod := 0, 0; i < n; i, pod = i+1, pod+1 {
		name := fmt.Sprintf("%s-%03d", network, pod)
		cmdSandbox(ts, false, []string{name})
		ts.Check(macvlan(ts, "ADD", []string{name, name, "eth0", fmt.Sprintf("%s/web-%03d", namespace, pod), network}))
		if pod%10 == 0 && i+1 < n {
			i++
			ts.Check(macvlan(ts, "ADD", []string{name, name, "net1", fmt.Sprintf("%s/web-%03d", namespace, pod), network}))
		}
	}
}

func callMacvlan(ts *testscript.TestScript, neg bool, verb string, args []string) {
	if len(args) < 4 {
		ts.Fatalf("usage: attach SANDBOX CONTAINER IFNAME NAMESPACE/POD [NETWORK]")
	}
	if err := macvlan(ts, verb, args); (err != nil) != neg {
		ts.Fatalf("%s %s: %v", verb, strings.Join(args, " "), err)
	}
}

func macvlan(ts *testscript.TestScript, verb string, args []string) error {
	network := "lan"
	if len(args) > 4 {
		network = args[4]
	}
	namespace, pod, _ := strings.Cut(args[3], "/")
	cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), "relink-macvlan"))
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + args[1], "CNI_IFNAME=" + args[2], "CNI_NETNS=" + ts.MkAbs(args[0]), "CNI_PATH=" + ts.Getenv("BIN"),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_NAME=" + pod,
		"RELINK_IPAM_DIR=" + ts.Getenv("RELINK_IPAM_DIR"), "RELINK_CHECKPOINT_DIR=" + ts.Getenv("RELINK_CHECKPOINT_DIR"), "PATH=" + os.Getenv("PATH"),
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "relink-macvlan", "master": %q,
		"ipam": {"type": "relink-ipam", "subnet": %q, "routes": [{"dst": "0.0.0.0/0"}]}}`, network, network+"0", subnets[network]))
	return runIn(ts.MkAbs("host"), cmd)
}

// cmdNodeAnswers is answers in the host: STATUS FILE ARGUMENT... A word in the file, such as MAC, INSTANT or INODE,
// stands for text that differs from run to run. relink sees no process of this machine, and takes those that it sees for all
// of the node's: a search for what keeps a namespace does not end in time while others start processes without a pause.
func cmdNodeAnswers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: answers STATUS FILE ARGUMENT...")
	}
	path, alone := filepath.Join(ts.Getenv("BIN")+"-failpoint", "relink"), "RELINK_FAILPOINT_ALL_PROCESSES=1"
	if ts.Getenv(tellEnv) != "" { // Only the test's own relink has the agent that answers from a file.
		own, err := exec.LookPath("relink")
		ts.Check(err)
		path, alone = own, aloneEnv+"=1"
	}
	var stdout, stderr bytes.Buffer
	unshare := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "slave", path}
	cmd := exec.Command("unshare", append(unshare, args[2:]...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.Getenv("WORK"), &stdout, &stderr
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0", "NODE_NAME=node", alone}
	for _, v := range []string{"TZ", "RELINK_IPAM_DIR", "RELINK_CHECKPOINT_DIR", "PATH", "GOCOVERDIR", "RELINK_AGENT_SOCKET", tellEnv} {
		cmd.Env = append(cmd.Env, v+"="+ts.Getenv(v))
	}
	if err := runIn(ts.MkAbs("host"), cmd); cmd.ProcessState == nil {
		ts.Check(err)
	}
	got := stdout.String() + stderr.String()
	for _, v := range varying {
		got = v.is.ReplaceAllString(got, v.word)
	}
	if *update {
		if status := fmt.Sprint(cmd.ProcessState.ExitCode()); status != args[0] {
			ts.Fatalf("exit status %s, want %s\n%s", status, args[0], got)
		}
		takeAnswer(ts, args[1], strings.ReplaceAll(got, ts.Getenv("WORK"), "$WORK"))
		return
	}
	want := spaces.ReplaceAllString(strings.ReplaceAll(ts.ReadFile(args[1]), "$WORK", ts.Getenv("WORK")), "  ")
	if status := fmt.Sprint(cmd.ProcessState.ExitCode()); spaces.ReplaceAllString(got, "  ") != want || status != args[0] {
		ts.Fatalf("exit status %s, want %s\n%s\nwant\n%s", status, args[0], got, want)
	}
}

// cmdFits is fits FILE: the answer has no more than 24 lines of 100 columns.
func cmdFits(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	if len(lines) > 24 {
		ts.Fatalf("%s has %d lines", args[0], len(lines))
	}
	for _, line := range lines {
		if len(line) > 100 {
			ts.Fatalf("%s has a line of %d columns: %s", args[0], len(line), line)
		}
	}
}

// varying pairs the text that differs from run to run with the word for it.
var varying = []struct {
	is   *regexp.Regexp
	word string
}{
	{instant, "INSTANT"},
	{bootForm, "${1}BOOT"},
	{regexp.MustCompile(`[0-9a-f]{2}(:[0-9a-f]{2}){5}`), "MAC"},
	{regexp.MustCompile(`inode \d+`), "inode INODE"},
	{regexp.MustCompile(`cookie \d+`), "cookie COOKIE"},
	{regexp.MustCompile(`index \d+`), "index INDEX"},
	{regexp.MustCompile(`\bin (\d+m)?\d+(\.\d+)?(ms|s)`), "in TIME"},
	{regexp.MustCompile(`, \S+ of it waiting for devices and carrier`), ""},
	{regexp.MustCompile(`\b\d+s ago`), "AGE ago"},
	{regexp.MustCompile(`dead for \d+s`), "dead for AGE"},
	{regexp.MustCompile(`until \d\d:\d\d:\d\d`), "until TIME"},
	{regexp.MustCompile(`twice, 1[12]m\d+s apart`), "twice, TIME apart"},
	{regexp.MustCompile(`(?m) \d+s( {2}|$)`), " AGE$1"},
	{regexp.MustCompile(`process \d+`), "process PID"},
	// Another story may get the inode of a sandbox that is gone.
	{regexp.MustCompile(`is gone: (no mount, process or socket of the node keeps it|an? .* keeps another namespace, which has its inode now)`), "is gone: PROOF"},
}
