package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"relink": func() {
		if os.Getenv(aloneEnv) != "" {
			allProcesses = func() bool { return true }
		}
		if path := os.Getenv(tellEnv); path != "" {
			addAgent = tellingAgent(path)
		}
		main()
	}})
}

// aloneEnv makes relink run where it sees no process and no mounted namespace of this machine. It takes the processes that
// it sees for all of the node's. So other programs on this machine cannot change what it finds.
const aloneEnv = "ALONE"

// aloneScript runs relink in the PID and mount namespaces that unshare has made.
const aloneScript = `umount -a -t nsfs 2>/dev/null; exec relink "$@"`

// TestStories runs an operator's commands as typed, and compares the answers.
func TestStories(t *testing.T) {
	hostLocal := filepath.Join(t.TempDir(), "host-local")
	build := exec.Command("go", "build", "-o", hostLocal, "github.com/containernetworking/plugins/plugins/ipam/host-local")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build host-local: %v\n%s", err, out)
	}
	if *update {
		writeAnswers(t, "testdata")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TZ", "UTC")
			env.Setenv("RELINK_IPAM_DIR", filepath.Join(env.WorkDir, "leases"))
			env.Setenv("HOST_LOCAL", hostLocal)
			return os.Mkdir(filepath.Join(env.WorkDir, "leases"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"answers": cmdAnswers, "relink-ipam": cmdRelinkIPAM, "relink-ipam-of": cmdRelinkIPAMOf, "relink-ipam-sticky": cmdRelinkIPAMSticky,
			"reserve-more": cmdReserveMore, "host-local": cmdHostLocal, "write": cmdWrite, "cut-short": cmdCutShort,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// instant matches a time as relink prints it.
var instant = regexp.MustCompile(`\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?Z| \d\d:\d\d:\d\d UTC)`)

// bootForm matches the ID of a boot. YAML quotes one that looks like a number at first.
var bootForm = regexp.MustCompile(`(bootID: )"` + uuidForm + `"|` + uuidForm)

const uuidForm = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// answers STATUS FILE ARGUMENT... runs relink. It must end with the exit status and print the text of the file: first
// all of stdout, then all of stderr. INSTANT and BOOT in the file stand for any time and any boot. An age of 0s stands
// for an age in seconds.
func cmdAnswers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: answers STATUS FILE ARGUMENT...")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("relink", args[2:]...)
	if ts.Getenv(aloneEnv) != "" {
		cmd = exec.Command("unshare", append([]string{"--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", aloneScript, "sh"}, args[2:]...)...)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.Getenv("WORK"), &stdout, &stderr
	// A program with the race detector sleeps for a second before it ends, unless told otherwise.
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	for _, v := range []string{"TZ", "RELINK_IPAM_DIR", "PATH", "GOCOVERDIR", aloneEnv} {
		cmd.Env = append(cmd.Env, v+"="+ts.Getenv(v))
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		ts.Check(err)
	}
	got := bootForm.ReplaceAllString(instant.ReplaceAllString(stdout.String()+stderr.String(), "INSTANT"), "${1}BOOT")
	got = seconds.ReplaceAllString(spaces.ReplaceAllString(got, "  "), "  0s  ")
	if *update {
		if status := fmt.Sprint(cmd.ProcessState.ExitCode()); status != args[0] {
			ts.Fatalf("exit status %s, want %s\n%s", status, args[0], got)
		}
		raw := bootForm.ReplaceAllString(instant.ReplaceAllString(stdout.String()+stderr.String(), "INSTANT"), "${1}BOOT")
		takeAnswer(ts, args[1], strings.ReplaceAll(seconds.ReplaceAllString(raw, "  0s  "), ts.Getenv("WORK"), "$WORK"))
		return
	}
	want := strings.ReplaceAll(ts.ReadFile(args[1]), "$WORK", ts.Getenv("WORK"))
	want = spaces.ReplaceAllString(want, "  ")
	if status := fmt.Sprint(cmd.ProcessState.ExitCode()); got != want || status != args[0] {
		ts.Fatalf("exit status %s, want %s\n%s\nwant\n%s", status, args[0], got, want)
	}
}

// spaces matches the gap between two columns of a table. The gap is wider where a time is longer than the word for it.
var spaces = regexp.MustCompile(` {2,}`)

// seconds matches an age in a table.
var seconds = regexp.MustCompile(`  \d+s  `)

// uncommon are ranges of which no namespace of this machine has addresses. An import looks for such addresses.
const uncommon = `[[{"subnet": "10.231.77.0/24"}]]`

const ranges = `[[{"subnet": "10.3.0.0/24"}]]`

// relink-ipam add|del NETWORK CONTAINER IFNAME [NAMESPACE POD] calls the plugin as a runtime does.
func cmdRelinkIPAM(ts *testscript.TestScript, neg bool, args []string) {
	callRelinkIPAM(ts, neg, `"ranges": `+ranges, args)
}

// relink-ipam-of RANGES add|del ... is relink-ipam with these ranges, in JSON.
func cmdRelinkIPAMOf(ts *testscript.TestScript, neg bool, args []string) {
	callRelinkIPAM(ts, neg, `"ranges": `+args[0], args[1:])
}

// relink-ipam-sticky add|del ... is relink-ipam that keeps addresses for their pods.
func cmdRelinkIPAMSticky(ts *testscript.TestScript, neg bool, args []string) {
	callRelinkIPAM(ts, neg, `"sticky": "pod", "ranges": `+ranges, args)
}

// callRelinkIPAM calls the plugin with these keys of its configuration. No quarantine ends during a story.
func callRelinkIPAM(ts *testscript.TestScript, neg bool, keys string, args []string) {
	if len(args) != 4 && len(args) != 6 {
		ts.Fatalf("usage: relink-ipam add|del NETWORK CONTAINER IFNAME [NAMESPACE POD]")
	}
	call := &skel.CmdArgs{
		ContainerID: args[2], IfName: args[3],
		StdinData: fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": %q, "ipam": {"dataDir": %q, "quarantine": "1h", %s}}`, args[1], ts.Getenv("RELINK_IPAM_DIR"), keys),
	}
	if len(args) == 6 {
		call.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=" + args[4] + ";K8S_POD_NAME=" + args[5] + ";K8S_POD_UID=uid-of-" + args[5]
	}
	var err error
	if args[0] == "add" {
		_, _, err = ipam.Add(context.Background(), call, nil)
	} else {
		err = ipam.Detached(context.Background(), (*ipam.Call).Del, call)
	}
	if (err != nil) != neg {
		ts.Fatalf("relink-ipam %s: %v", strings.Join(args, " "), err)
	}
}

// reserve-more NETWORK NAMESPACE ADDRESS... reserves each address for a pod of its own.
func cmdReserveMore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: reserve-more NETWORK NAMESPACE ADDRESS...")
	}
	store, err := lease.Open(ts.Getenv("RELINK_IPAM_DIR"), args[0])
	ts.Check(err)
	for i, a := range args[2:] {
		_, err := store.Reserve(context.Background(), netip.MustParseAddr(a), attachment.Pod{Namespace: args[1], Name: fmt.Sprint("kept-", i)}.Owner(), 0)
		ts.Check(err)
	}
}

// host-local ADD|DEL NETWORK CONTAINER IFNAME runs the real plugin on the directory
// "networks".
func cmdHostLocal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: host-local ADD|DEL NETWORK CONTAINER IFNAME")
	}
	cmd := exec.Command(ts.Getenv("HOST_LOCAL"))
	cmd.Env = []string{
		"CNI_COMMAND=" + args[0], "CNI_CONTAINERID=" + args[2], "CNI_IFNAME=" + args[3], "CNI_NETNS=/none", "CNI_PATH=/none",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "ipam": {"type": "host-local", "dataDir": %q, "ranges": %s}}`,
		args[1], ts.MkAbs("networks"), uncommon))
	if out, err := cmd.CombinedOutput(); err != nil {
		ts.Fatalf("host-local %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// write FILE TEXT makes a file as host-local does. The text can contain \r and \n.
func cmdWrite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: write FILE TEXT")
	}
	text := strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(args[1])
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o700))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// cut-short FILE cuts a file as a lost write might.
func cmdCutShort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: cut-short FILE")
	}
	ts.Check(os.Truncate(ts.MkAbs(args[0]), 100))
}

// TestListWhileAddsRun checks that list and ADDs wait for each other, and that neither fails.
func TestListWhileAddsRun(t *testing.T) {
	const adds = 40
	t.Setenv(lease.DirEnv, t.TempDir())
	ctx := context.Background()
	added := make(chan error, 1)
	go func() {
		for i := range adds {
			_, _, err := ipam.Add(ctx, &skel.CmdArgs{
				ContainerID: fmt.Sprint("c", i), IfName: "eth0",
				StdinData: []byte(`{"cniVersion": "1.0.0", "name": "lan", "ipam": {"ranges": ` + ranges + `}}`),
			}, nil)
			if err != nil {
				added <- err
				return
			}
		}
		added <- nil
	}()
	seen := 0
	for done := false; !done; {
		select {
		case err := <-added:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		var stdout, stderr bytes.Buffer
		if code := run(ctx, []string{"ipam", "list"}, &stdout, &stderr); code != cli.OK {
			t.Fatalf("exit status %d: %s", code, &stderr)
		}
		now := strings.Count(stdout.String(), "next in turn")
		if now < seen {
			t.Fatalf("%d leases after %d", now, seen)
		}
		seen = now
	}
	if seen != adds {
		t.Errorf("%d leases at the end, want %d", seen, adds)
	}
}

// TestStoreInUse checks that a command waits for a store that is in use, but not for ever.
func TestStoreInUse(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(lease.DirEnv, dir)
	ctx := context.Background()
	reserve := []string{"ipam", "reserve", "10.3.0.9", "default/web-0", "--network", "lan", "--force"}
	if code := run(ctx, reserve, &bytes.Buffer{}, &bytes.Buffer{}); code != cli.OK {
		t.Fatalf("%v: exit status %d", reserve, code)
	}
	f, err := os.Open(filepath.Join(dir, "lan.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"ipam", "list"}, cli.Differs},
		{[]string{"ipam", "show", "10.3.0.9"}, cli.Differs},
		{[]string{"ipam", "release", "10.3.0.9", "--network", "lan", "--nobody"}, cli.Usage},
		{reserve, cli.Usage},
	} {
		var stdout, stderr bytes.Buffer
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		code := run(short, test.args, &stdout, &stderr)
		cancel()
		want := "relink: store " + dir + "/lan.db: in use by another process (held by " + flock.HoldersOf(f)[0] + ") for more than 30s\n"
		if code != test.code || stderr.String() != want {
			t.Errorf("%v: exit status %d, %q; want %d, %q", test.args, code, &stderr, test.code, want)
		}
	}
	// A reader's lock does not keep other readers out.
	if err := flock.Try(f, flock.Shared); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ipam", "list"}, {"ipam", "show", "10.3.0.9"}} {
		var stderr bytes.Buffer
		if code := run(ctx, args, &bytes.Buffer{}, &stderr); code != cli.OK {
			t.Errorf("%v beside another that looks: exit status %d, %s", args, code, &stderr)
		}
	}
}
