package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/test/agentsocket"
)

// pausable is an agent that keeps its pause.
type pausable struct{ status control.Status }

func (a *pausable) Status() control.Status { return a.status }

func (a *pausable) Pause(_ context.Context, length time.Duration, why string) (control.Pause, error) {
	p, err := control.NewPause(length, why)
	a.status.Paused = &p
	return p, err
}

func (a *pausable) Resume(context.Context) error {
	a.status.Paused = nil
	return nil
}

// runsTo runs the command line, and returns the exit status and all that it says.
func runsTo(args ...string) (int, string) {
	var out bytes.Buffer
	code := run(context.Background(), args, &out, &out)
	return code, out.String()
}

func TestPauseAndResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	t.Setenv(control.SocketEnv, path)
	t.Setenv("RELINK_CHECKPOINT_DIR", t.TempDir())
	t.Setenv("RELINK_IPAM_DIR", t.TempDir())
	if code, out := runsTo("pause"); code != cli.Usage || out != "relink: no relink-agent runs on this node: nothing listens on "+path+"\n" {
		t.Errorf("without an agent: %d, %s", code, out)
	}
	if code, out := runsTo("status"); code != cli.OK || !strings.HasSuffix(out, "\nAGENT\n  none runs: after a loss, type relink restore\n") {
		t.Errorf("status without an agent: %d, %s", code, out)
	}
	agent := &pausable{status: control.Status{StartedAt: time.Now().Add(-3*time.Hour - 30*time.Second), Chains: []control.Chain{
		{Base: "bond4", State: control.Whole, Attachments: 7},
		{Base: "eth0", State: control.BackingOff, Reason: "eth0 is gone", Attachments: 3, Lost: 2, Since: time.Now().Add(-20*time.Minute - 2*time.Second), NextTry: time.Now().Add(time.Minute)},
	}}}
	agentsocket.ServeAt(t, path, serve.Handler(agent, serve.Sources{}, nil))

	// A pause that has begun a moment ago is less than that long, and relink tells whole minutes from 10m on.
	if code, out := runsTo("pause", "--for", "10m30s", "--why", "new \x1b[31mfirmware"); code != cli.OK ||
		!strings.HasPrefix(out, "relink-agent is paused until ") || !strings.HasSuffix(out, `, for another 10m: new \u001b[31mfirmware`+"\n") {
		t.Errorf("pause: %d, %q", code, out)
	}
	if code, out := runsTo("status"); code != cli.OK || !strings.Contains(out, "\nAGENT\n  up for 3h: 1 base whole, 1 base backing off; paused until ") ||
		!strings.Contains(out, "firmware\n  eth0: backing off for 20m, 2 of 3 attachments lost: eth0 is gone; next try in ") {
		t.Errorf("status of a paused agent: %d, %s", code, out)
	}
	if code, out := runsTo("pause"); code != cli.OK || out != "relink-agent is paused until relink resume\n" {
		t.Errorf("pause without end: %d, %s", code, out)
	}
	for range 2 {
		if code, out := runsTo("resume"); code != cli.OK || out != "relink-agent is not paused\n" || agent.status.Paused != nil {
			t.Errorf("resume: %d, %s", code, out)
		}
	}
	if code, out := runsTo("pause", "--for", "-1s"); code != cli.Usage || !strings.Contains(out, `invalid --for "-1s": must be more than 0`) {
		t.Errorf("a time in the past: %d, %s", code, out)
	}
}

// A status is not kept by an agent that hangs. It says so, and that not all is known.
func TestStatusOfAnAgentThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	t.Setenv(control.SocketEnv, path)
	t.Setenv("RELINK_CHECKPOINT_DIR", t.TempDir())
	t.Setenv("RELINK_IPAM_DIR", t.TempDir())
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	want := "relink-agent does not answer within 2s: look at its log, or restart it (" + path + ")\n"
	if code, out := runsTo("status", "-q"); code != cli.Differs || !strings.HasSuffix(out, want) {
		t.Errorf("%d, %s", code, out)
	}
}
