package guard

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// The whole work in order, and what the command sees while it runs.
func TestGuardBringsEverythingBack(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	seen := `systemctl is-active kubelet >"$UNITS/seen"; systemctl list-timers --no-legend "relink-guard-*" >"$UNITS/timer"; ` + bin + `/relink status | grep -A1 AGENT >>"$UNITS/seen"; echo "the command speaks"; ` + reload
	out := h.guard(t, 0, seen)
	contains(t, out, "the command speaks\n", "command: sh -c systemctl is-active kubelet ", "deadline: kubelet.service is away for 4m12.6s at most",
		"1 attachment checked; gateways that answer: 1 of 1", "relink-agent is paused", "kubelet.service is stopped", "the command has ended with exit status 0",
		"restored or repaired 1 attachment", "kubelet.service is started", "relink-agent goes on", "everything is back", "exit status 0\n")
	h.whole(t, "active")
	if log := h.read("units/log"); log != "stop kubelet.service\nstart kubelet.service\n" {
		t.Errorf("the units:\n%s", log)
	}
	if units := fresh.Run(t, "", "systemctl list-units --all --no-legend 'relink-guard-*'"); units != "" {
		t.Errorf("left behind: %s", units)
	}
	contains(t, h.read("units/seen"), "inactive\n", "AGENT\n  up for ", "paused until ")
	contains(t, h.read("units/timer"), "4min ", " left ", "relink-guard-")
	// A later --follow shows the log, too.
	follow, status := h.status(t, h.relink("guard", "--follow"))
	if status != 0 || follow != h.read("guard/log") || !strings.Contains(follow, "the command speaks\n") {
		t.Errorf("follow: %d\n%s", status, follow)
	}
	if out, status := h.status(t, h.relink("guard", "--resume")); status != 0 || !strings.Contains(out, "there is nothing to finish: the last guard has ended with exit status 0") {
		t.Errorf("resume: %d\n%s", status, out)
	}
}

func TestTheStatusTellsWhoEnded(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	contains(t, h.guard(t, 3, reload+"; exit 3"), "the command has ended with exit status 3", "everything is back")
	h.whole(t, "active")
	contains(t, h.guard(t, 128+11, "kill -SEGV $$"), "the command has ended with exit status 139", "everything is back")
	out, status := h.status(t, h.relink("guard", "--", "no-such-program"))
	if status != 127 || !strings.Contains(out, "the command cannot be run: exec: \"no-such-program\": executable file not found in $PATH: give a program, or sh -c '...'") {
		t.Errorf("no such program: %d, %s", status, out)
	}
	h.write(t, "path/plain", "")
	if out, status = h.status(t, h.relink("guard", "--", filepath.Join(h.dir, "path", "plain"))); status != 126 || !strings.Contains(out, "cannot be run: ") {
		t.Errorf("no program: %d, %s", status, out)
	}
	script := filepath.Join(h.dir, "path", "script") // A shell runs a script without an interpreter line, too.
	fresh.Run(t, "", "echo 'echo $0; exit 6' >"+script+"; chmod 700 "+script)
	if out, status = h.status(t, h.relink("guard", "--", script)); status != 6 || !strings.Contains(out, script+"\n") {
		t.Errorf("a script: %d, %s", status, out)
	}
	for want, args := range map[string][]string{
		"an argument is missing: relink guard -- COMMAND":             {"guard"},
		"unknown flag --nonsense":                                     {"guard", "--nonsense", "--", "true"},
		`invalid --limit "0": must be more than 0`:                    {"guard", "--limit", "0", "--", "true"},
		`invalid --stop "no.service": systemd knows no such unit`:     {"guard", "--stop", "no", "--", "true"},
		`invalid --stop "a b.service": must be the name of a systemd`: {"guard", "--stop", "a b", "--", "true"},
		`--follow and --resume take no COMMAND and no --via`:          {"guard", "--follow", "--", "true"},
	} {
		if out, status := h.status(t, h.relink(args...)); status != 125 || !strings.Contains(out, want) {
			t.Errorf("%v: %d, %s, want %s", args, status, out, want)
		}
	}
	h.whole(t, "active")
	if got := strings.Count(h.read("units/log"), "stop kubelet.service"); got != 3 {
		t.Errorf("the kubelet was stopped %d times, want 3\n%s\n%s\n%s", got, h.read("units/log"), h.read("guard/log"), fresh.Run(t, "", "journalctl --sync; journalctl --no-pager -u kubelet"))
	}
}

func TestAKubeletThatDoesNotRunStaysSo(t *testing.T) {
	h := newHost(t, "inactive")
	if h == nil {
		return
	}
	contains(t, h.guard(t, 0, reload), "kubelet.service does not run, and stays so")
	h.whole(t, "inactive")
	if log := h.read("units/log"); strings.Contains(log, "kubelet") {
		t.Errorf("the units:\n%s", log)
	}
}

func TestOtherUnits(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.unit(t, "rke2-agent.service", "active", "")
	h.unit(t, "other.service", "inactive", "")
	h.guard(t, 0, `systemctl is-active rke2-agent other kubelet >"$UNITS/seen" || true`, "--stop", "rke2-agent", "--stop", "other")
	if seen := h.read("units/seen"); seen != "inactive\ninactive\nactive\n" || state(t, "rke2-agent") != "active" || state(t, "other") != "inactive" {
		t.Errorf("meanwhile %q, now %q, %q", seen, state(t, "rke2-agent"), state(t, "other"))
	}
	h.whole(t, "active")
}

// Without --stop, the unit that contains the kubelet stops: RKE2 has units for two roles, and one of them runs.
func TestTheKubeletOfRKE2(t *testing.T) {
	h := newHost(t, "")
	if h == nil {
		return
	}
	h.unit(t, "rke2-agent.service", "inactive", "")
	h.unit(t, "rke2-server.service", "active", "")
	h.guard(t, 0, `systemctl is-active rke2-server >"$UNITS/seen" || true`)
	if seen, log := h.read("units/seen"), h.read("units/log"); seen != "inactive\n" || strings.Contains(log, "rke2-agent") || state(t, "rke2-server") != "active" {
		t.Errorf("meanwhile %q; the units:\n%s", seen, log)
	}
}

// The guard touches nothing if the pods are not as recorded before the command, or if the kubelet cannot be stopped.
func TestWhatGuardRefuses(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	fresh.Run(t, h.pod, "ip link set eth0 mtu 1400")
	touch := "touch " + filepath.Join(h.dir, "ran")
	contains(t, h.guard(t, 125, touch), "the command was not run: not everything is as recorded: shop/web-0: eth0: MTU is 1400, not 1500", "--force goes on")
	removal, status := h.status(t, h.relink("guard", "--", "modprobe", "-r", "no_such"))
	if status != 125 {
		t.Errorf("a removal: exit status %d", status)
	}
	contains(t, removal, "the command only takes a device away: modprobe -r no_such", "relink guard -- sh -c 'modprobe -r no_such && modprobe no_such'")
	if h.read("units/log") != "" || h.agent.pauses > 0 {
		t.Errorf("the units:\n%s", h.read("units/log"))
	}
	contains(t, h.guard(t, 0, reload, "--force"), "note: not everything is as recorded: shop/web-0: eth0: MTU is 1400, not 1500")
	h.whole(t, "active")
	h.unit(t, "kubelet.service", "", "RefuseManualStop=yes")
	contains(t, h.guard(t, 125, touch), "the command was not run: systemctl stop kubelet.service: exit status ", "Operation refused")
	h.atRest(t, "active")
	if _, err := os.Stat(filepath.Join(h.dir, "ran")); err == nil {
		t.Error("the command was run")
	}
}

func TestTheNICNeverComesBack(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	start := time.Now()
	out := h.guard(t, 123, "ip link del lan0", "--wait", "300ms")
	contains(t, out, "the command has ended with exit status 0", "waiting: ", "NOT BACK: shop/web-0: ", "its gateway 10.3.0.1 does not answer",
		"kubelet.service is started", "see above, and relink status")
	if took := time.Since(start); took > 60*time.Second {
		t.Errorf("it took %s", took)
	}
	h.atRest(t, "active")
}

// The report has one line for each cause, and not one for each pod.
func TestManyPodsAreNotBack(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	for i := range 8 {
		id := fmt.Sprintf("many%d", i)
		path := filepath.Join(h.dir, id)
		fresh.At(t, path)
		h.cni(t, "ADD", id, path, id)
	}
	out := h.guard(t, 123, "ip link del lan0", "--wait", "0s")
	_, report, _ := strings.Cut(out, "the command has ended with exit status 0")
	contains(t, report, "NOT BACK: 9 interfaces (shop/many0, shop/many1, shop/many2, and 6 more): lan0 (veth) is not there\n", "NOT BACK: 9 interfaces (shop/web-0 eth0, shop/many0 eth0, shop/many1 eth0, and 6 more): its gateway 10.3.0.1 does not answer\n")
	if lines := strings.Count(report, "\n"); lines > 8 {
		t.Errorf("the report has %d lines:\n%s", lines, out)
	}
}

func TestACommandThatHangs(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	// The command ignores TERM, and so does a process that it has started in another session.
	out := h.guard(t, 124, reload+`; trap "" TERM INT; setsid sh -c 'trap "" TERM; echo $$ >"$UNITS/daemon"; while :; do sleep 1; done' & while :; do sleep 1; done`, "--limit", reloads)
	contains(t, out, "the command has run for "+reloads+": it gets SIGTERM, and after 300ms SIGKILL", "the command has passed its limit", "everything is back")
	h.whole(t, "active")
	if pid := strings.TrimSpace(h.read("units/daemon")); pid == "" {
		t.Error("it has started nothing")
	} else if b, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
		t.Errorf("what it has started is alive: %s", b)
	}
}

// The report names processes that the command leaves behind. They live on, and hold no lock of the guard.
func TestACommandThatForks(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	out := h.guard(t, 3, reload+`; setsid sleep 97 & nohup sleep 98 >/dev/null 2>&1 & sleep 0.3; exit 3`)
	contains(t, out, "the command has left a process behind: sleep (process ")
	if got := strings.Count(out, "left a process behind: sleep"); got != 2 {
		t.Errorf("%d processes are named, want 2", got)
	}
	h.whole(t, "active")
	h.guard(t, 0, "true")
	fresh.Run(t, "", `for n in 97 98; do kill $(pgrep -x -f "sleep $n"); done; systemctl stop "relink-guard-*"`)
}

// With --quiet, the guard writes only problems. Everything else is in the log.
func TestQuiet(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	if out := h.guard(t, 0, "echo said; "+reload, "--quiet"); out != "" {
		t.Errorf("all is well: %q", out)
	}
	out := h.guard(t, 123, "ip link del lan0", "--quiet", "--wait", "100ms")
	if strings.Contains(out, "is started") || strings.Contains(out, "command: ") {
		t.Errorf("it is not quiet:\n%s", out)
	}
	contains(t, out, "relink: shop/web-0: ")
	contains(t, h.guard(t, 125, "true", "--quiet"), "relink: not everything is as recorded: shop/web-0: ")
	contains(t, h.read("guard/log"), "the command was not run: not everything")
}

// An agent that does not answer may restore while the command runs. The guard leaves an earlier pause of somebody else
// alone.
func TestThePauseOfTheAgent(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	silent, err := net.Listen("unix", filepath.Join(h.dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, h.guard(t, 125, "true"), "the command was not run: relink-agent is not paused: relink-agent does not answer within 5s")
	if h.read("units/log") != "" {
		t.Errorf("the units:\n%s", h.read("units/log"))
	}
	_ = silent.Close()
	h.runAgent(t)
	_, _ = h.agent.Pause(t.Context(), 0, "mine")
	contains(t, h.guard(t, 0, reload), "relink-agent is paused already, and stays so")
	if p := h.agent.paused(); p == nil || p.Reason != "mine" || h.agent.pauses != 1 {
		t.Errorf("a pause without end: %+v", p)
	}
	_, _ = h.agent.Pause(t.Context(), 2*time.Minute, "short") // It is over before a long guard would be.
	contains(t, h.guard(t, 0, "true"), "relink-agent is paused", "relink-agent goes on")
	h.whole(t, "active")
}

// While a guard runs, the plugins' STATUS does not report a missing master. Without a guard it does.
func TestStatusOfThePluginsMeanwhile(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	status := `echo '{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0", "ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24"}}' |
		CNI_COMMAND=STATUS CNI_PATH=` + bin + " " + filepath.Join(bin, "relink-macvlan")
	out := h.guard(t, 0, strings.Replace(reload, ";", "; "+status+" && echo the node is ready;", 1))
	contains(t, out, "the node is ready\n", "everything is back")
	fresh.Run(t, h.netns, "ip link del lan0")
	cmd := exec.Command("sh", "-c", status)
	cmd.Env = h.env
	if out, status := h.status(t, cmd); status == 0 || !strings.Contains(out, "lan0") {
		t.Errorf("without a guard: %d\n%s", status, out)
	}
}

// A command that writes without end must not fill the file system of the checkpoints.
func TestMuchOutput(t *testing.T) {
	h := newHost(t, "")
	if h == nil {
		return
	}
	out := h.guard(t, 0, `head -c 24000000 /dev/zero | tr '\0' x; echo; sleep 0.2; echo end of output; `+reload)
	contains(t, out[max(0, len(out)-1000):], "end of output", "everything is back",
		"note: the command has written more than 16 MiB: the log begins anew\n")
	if log := h.read("guard/log"); len(log) > 16<<20 || !strings.HasSuffix(strings.TrimSpace(log), "exit status 0") {
		t.Errorf("the log has %d bytes", len(log))
	}
}

// The command fills the disk of guard's directory. The pods do not wait for the limit, and the exit status is the command's.
func TestAFullDisk(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	dir := filepath.Join(h.dir, "guard")
	fresh.Run(t, "", "mkdir "+dir+"; mount -t tmpfs -o size=128k none "+dir)
	t.Cleanup(func() { fresh.Run(t, "", "umount -l "+dir) })
	start := time.Now()
	h.guard(t, 1, reload+"; cat /dev/zero >"+dir+"/full")
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	h.whole(t, "active")
}

// Every word reaches the command as it is, whatever systemd or a shell would make of it.
func TestOddWords(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	words := []string{"-x", "--", "%n%%", "$HOME ${HOME} $$", `"a' \n`, "", " ;", "@-+!:", "\n"}
	out, status := h.status(t, h.relink(append(h.guardArgs(`printf "<%s>" "$0" "$@"; echo`), words...)...))
	if want := "<" + strings.Join(words, "><") + ">\n"; status != 0 || !strings.Contains(out, want) {
		t.Errorf("%d, want %q\n%s", status, want, out)
	}
}
