package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/test/agentsocket"
	"github.com/relink-cni/relink/test/fresh"
)

// agent keeps the pause that it is given.
type agent struct {
	mu     sync.Mutex
	status control.Status
	// busy makes a pause wait until busy is closed or the request ends.
	busy chan struct{}
}

func (a *agent) Status() control.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (a *agent) Pause(ctx context.Context, length time.Duration, why string) (control.Pause, error) {
	p := control.Pause{Since: time.Unix(1000, 0).UTC(), Reason: why}
	if length > 0 {
		p.Until = p.Since.Add(length)
	}
	a.mu.Lock()
	a.status.Paused = &p
	a.mu.Unlock()
	if a.busy != nil {
		select {
		case <-a.busy:
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
	return p, nil
}

func (a *agent) Resume(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status.PID == 0 {
		return errors.New("it is ending")
	}
	a.status.Paused = nil
	return nil
}

// serveAgent serves the agent and returns the socket's path.
func serveAgent(t *testing.T, a *agent) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "agent.sock")
	t.Cleanup(func() {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket after the end: %v", err)
		}
	})
	more := map[string]http.Handler{"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "well") })}
	agentsocket.ServeAt(t, path, serve.Handler(a, serve.Sources{}, more))
	return path
}

func TestClientSteersTheAgent(t *testing.T) {
	want := control.Status{
		Version: "1", PID: 7, StartedAt: time.Unix(900, 0).UTC(), Unannounced: 2,
		Chains: []control.Chain{{Base: "eth0", State: control.BackingOff, Since: time.Unix(950, 0).UTC(), Reason: "it is gone", NextTry: time.Unix(960, 0).UTC(), Attachments: 3, Lost: 3}},
		Drift:  []control.Drift{{Attachment: attachment.Key{Network: "n", ContainerID: "c", IfName: "eth0"}, Pod: attachment.Pod{Namespace: "shop", Name: "web-0"}, Reason: "MTU is 1400, not 1500"}},
	}
	a := &agent{status: want}
	client := control.Client{Path: serveAgent(t, a)}
	if got, err := client.Status(t.Context()); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	p, err := client.Pause(t.Context(), 10*time.Minute, "new driver")
	if want := (control.Pause{Since: time.Unix(1000, 0).UTC(), Until: time.Unix(1600, 0).UTC(), Reason: "new driver"}); err != nil || p != want {
		t.Errorf("%+v, %v, want %+v", p, err, want)
	}
	if got, err := client.Status(t.Context()); err != nil || got.Paused == nil || *got.Paused != p {
		t.Errorf("while it is paused: %+v, %v", got.Paused, err)
	}
	if p, err = client.Pause(t.Context(), 0, ""); err != nil || !p.Until.IsZero() {
		t.Errorf("without end: %+v, %v", p, err)
	}
	if err := client.Resume(t.Context()); err != nil || a.Status().Paused != nil {
		t.Errorf("after a resume: %+v, %v", a.Status().Paused, err)
	}
	a.status.PID = 0
	if err := client.Resume(t.Context()); err == nil || err.Error() != "relink-agent refused: it is ending" {
		t.Errorf("an agent that refuses: %v", err)
	}
}

// The documents promise that curl works.
func TestCurlWorks(t *testing.T) {
	a := &agent{status: control.Status{PID: 7}}
	path := serveAgent(t, a)
	curl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("curl", append([]string{"-sS", "--max-time", "10", "--unix-socket", path}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("curl %v: %v", args, err)
		}
		return string(out)
	}
	var s control.Status
	if out := curl("http://relink/v1/status"); json.Unmarshal([]byte(out), &s) != nil || s.PID != 7 {
		t.Errorf("status: %s", out)
	}
	if out := curl("-d", `{"for":"10m","why":"new driver"}`, "http://relink/v1/pause"); !strings.Contains(out, `"why":"new driver"`) {
		t.Errorf("pause: %s", out)
	}
	if out := curl("-X", "POST", "http://relink/v1/pause"); strings.Contains(out, "until") || a.Status().Paused == nil {
		t.Errorf("pause without a body: %s", out)
	}
	if out := curl("-w", "%{http_code}", "-X", "POST", "http://relink/v1/resume"); out != "204" {
		t.Errorf("resume: %s", out)
	}
	if out := curl("http://relink/healthz"); out != "well\n" {
		t.Errorf("healthz: %s", out)
	}
	if out := curl("-o", "/dev/null", "-w", "%{http_code}", "http://relink/v1/pause"); out != "405" {
		t.Errorf("GET of pause: %s", out)
	}
}

func TestABadPauseIsExplained(t *testing.T) {
	path := serveAgent(t, &agent{})
	for body, want := range map[string]string{
		`{"for":"ten"}`:   `invalid "for" "ten": must be a time of more than 0, such as 90s or 10m; leave it out for a pause until you resume`,
		`{"for":"-1s"}`:   `invalid "for" "-1s": must be a time of more than 0`,
		`{"for":"0s"}`:    `invalid "for" "0s": must be a time of more than 0`,
		`{"until":"10m"}`: `the body must be JSON such as {"for": "10m", "why": "new driver"}: json: unknown field "until"`,
		`{"for":`:         `the body must be JSON`,
		`{"why":"` + strings.Repeat("x", 5000) + `"}`: `the body must be JSON such as {"for": "10m", "why": "new driver"}: http: request body too large`,
	} {
		status, answer := sendRaw(t, path, fmt.Sprintf("POST /v1/pause HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		var said control.Refusal
		if err := json.Unmarshal([]byte(answer), &said); err != nil || status != 400 || !strings.HasPrefix(said.Reason, want) {
			t.Errorf("%.40s: status %d, %q, want %q (%v)", body, status, said.Reason, want, err)
		}
	}
}

// sendRaw sends text as it is, and returns the status and the body of the answer.
func sendRaw(t *testing.T, path, text string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			break
		}
	}
	head, body, _ := strings.Cut(all.String(), "\r\n\r\n")
	_, _ = fmt.Sscanf(head, "HTTP/1.0 %d", &status)
	return status, body
}

func TestOnlyRootMayConnect(t *testing.T) {
	path := serveAgent(t, &agent{status: control.Status{PID: 7}})
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("the socket: %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("its directory: %v, %v", info.Mode(), err)
	}
	// Somebody gives everybody access. The kernel still says who connects.
	for dir := path; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	var got string
	var failed error
	fresh.AsNobody(t, func() { got, failed = statusByHand(path) })
	if failed != nil || got != "" {
		t.Errorf("nobody gets %q, %v", got, failed)
	}
	if got, err := statusByHand(path); err != nil || !strings.HasPrefix(got, "HTTP/1.0 200 ") {
		t.Errorf("root gets %q, %v", got, err)
	}
}

// statusByHand asks for the status on the calling thread alone.
func statusByHand(path string) (string, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return "", err
	}
	_ = syscall.Sendto(fd, []byte("GET /v1/status HTTP/1.0\r\n\r\n"), syscall.MSG_NOSIGNAL, nil) // The connection may be closed already.
	buf := make([]byte, 512)
	n, err := syscall.Read(fd, buf)
	if errors.Is(err, syscall.ECONNRESET) {
		return "", nil
	}
	return string(buf[:max(n, 0)]), err
}

// Some clients connect and send nothing, or never finish their request. They must not block other clients for ever.
func TestSlowClientsAreDropped(t *testing.T) {
	t.Parallel()
	path := serveAgent(t, &agent{status: control.Status{PID: 7}})
	start := time.Now() // On a busy machine, the first of them are dropped before the last ones are there.
	for i := range 40 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, _ = conn.Write([]byte("POST /v1/pause HTTP/1.1\r\nHost: relink\r\nContent-Type: a\r\nContent-Length: 4000\r\n\r\n{"))
		}
	}
	if _, err := (control.Client{Path: path, Patience: 20 * time.Second}).Status(t.Context()); err != nil {
		t.Errorf("after %s: %v", time.Since(start), err)
	}
	if time.Since(start) < time.Second {
		t.Error("the slow clients blocked nobody, so the test shows nothing")
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	path := serveAgent(t, &agent{status: control.Status{PID: 7}})
	if _, err := serve.Listen(path); !errors.Is(err, flock.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("beside another: %v", err)
	}
	if s, err := (control.Client{Path: path}).Status(t.Context()); err != nil || s.PID != 7 {
		t.Errorf("the first one afterwards: %+v, %v", s, err)
	}
}

// A pause waits for work: the wait ends with the request. A killed agent leaves its socket behind.
func TestWithoutAnAnswer(t *testing.T) {
	a := &agent{busy: make(chan struct{})}
	path := serveAgent(t, a)
	start := time.Now()
	if _, err := (control.Client{Path: path, Patience: 50 * time.Millisecond}).Pause(t.Context(), 0, ""); !errors.Is(err, control.ErrNoAnswer) || time.Since(start) > 5*time.Second {
		t.Errorf("a busy agent: %v after %s", err, time.Since(start))
	}
	// On a busy machine, the agent comes to the request when the client has gone.
	for deadline := time.Now().Add(20 * time.Second); a.Status().Paused == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if a.Status().Paused == nil {
		t.Error("a pause that nobody waits for any more is undone")
	}
	orphan := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: orphan, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if _, err := (control.Client{Path: orphan}).Status(t.Context()); !errors.Is(err, control.ErrNoAgent) {
		t.Errorf("the socket of a killed agent: %v", err)
	}
	listener, err := serve.Listen(orphan)
	if err != nil {
		t.Fatalf("the socket is not replaced: %v", err)
	}
	_ = listener.Close()
}
