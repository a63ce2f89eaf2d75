package guard

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// journalAfter returns a journal in which these steps are done. A step with a dash before it is only begun.
func journalAfter(steps ...string) (j Journal) {
	for _, s := range steps {
		name, half := strings.CutPrefix(s, "-")
		j.begin(Step(name), time.Unix(1, 0), 1*time.Second)
		if !half {
			j.end(Step(name), time.Unix(2, 0))
		}
	}
	return j
}

func TestNext(t *testing.T) {
	opened := []string{string(Check), string(Capture), string(PauseAgent), string(NoteUnits), string(ArmRestart), string(StopUnits)}
	ran := append(slices.Clone(opened), string(RunCommand))
	const way, finished, last = "it is the next step on the way to the command", "everything is finished", "it is the last step"
	for what, test := range map[string]struct {
		j    Journal
		mut  func(*Journal)
		want Step
		why  string
	}{
		"nothing done":                       {journalAfter(), nil, Check, way},
		"half a check":                       {journalAfter("-check"), nil, Check, way},
		"everything open":                    {journalAfter(opened...), nil, RunCommand, way},
		"the command has run":                {journalAfter(ran...), nil, Restore, "it follows from: run the command"},
		"restored":                           {journalAfter(append(ran, "restore")...), nil, AskGateways, "it follows from: run the command"},
		"asked":                              {journalAfter(append(ran, "restore", "ask the gateways")...), nil, StartUnits, "it follows from: stop the units"},
		"started":                            {journalAfter(append(ran, "restore", "ask the gateways", "start the units")...), nil, ResumeAgent, "it follows from: pause the agent"},
		"the agent goes on":                  {journalAfter(append(ran, "restore", "ask the gateways", "start the units", "resume the agent")...), nil, DisarmRestart, "it follows from: arm the restart"},
		"disarmed":                           {journalAfter(append(ran, "restore", "ask the gateways", "start the units", "resume the agent", "disarm the restart")...), nil, Report, last},
		"finished":                           {journalAfter(ran...), func(j *Journal) { j.Finished = time.Unix(3, 0) }, "", finished},
		"refused at the check":               {journalAfter("check"), func(j *Journal) { j.Abandoned = "why" }, Report, last},
		"refused after the pause":            {journalAfter("check", "capture", "pause the agent"), func(j *Journal) { j.Abandoned = "why" }, ResumeAgent, "it follows from: pause the agent"},
		"refused at the stop":                {journalAfter(append(opened[:5:5], "-stop the units")...), func(j *Journal) { j.Abandoned = "why" }, StartUnits, "it follows from: stop the units"},
		"killed at the stop":                 {journalAfter(append(opened[:5:5], "-stop the units")...), func(j *Journal) { j.Abandoned, j.Resumed = "why", true }, StartUnits, "it follows from: stop the units"},
		"killed while the command ran":       {journalAfter(append(opened[:6:6], "-run the command")...), func(j *Journal) { j.Resumed = true }, AwaitCommand, "the guard was killed while the command ran"},
		"killed after the command was noted": {journalAfter(ran...), func(j *Journal) { j.Resumed = true }, Restore, "it follows from: run the command"},
		"killed in the restore":              {journalAfter(append(ran, "-restore")...), func(j *Journal) { j.Resumed = true }, Restore, "it follows from: run the command"},
		"awaited":                            {journalAfter(append(opened[:6:6], "-run the command", "await the command")...), func(j *Journal) { j.Resumed = true }, Restore, "it follows from: run the command"},
	} {
		if test.mut != nil {
			test.mut(&test.j)
		}
		if got, why := Next(test.j); got != test.want || why != test.why {
			t.Errorf("%s: %q because %s, want %q because %s", what, got, why, test.want, test.why)
		}
	}
}

// After any kill, a resume comes to an end. It starts the kubelet if that was stopped, and does nothing twice.
func TestNextComesToAnEnd(t *testing.T) {
	for n := range openingSteps {
		for _, half := range []bool{false, true} {
			var j Journal
			for _, s := range openingSteps[:n+1] {
				j.begin(s, time.Unix(1, 0), 1*time.Second)
				if s != openingSteps[n] || !half {
					j.end(s, time.Unix(2, 0))
				}
			}
			j.Resumed = true
			if !j.isBegun(RunCommand) {
				j.Abandoned = "killed"
			}
			var did []Step
			for s, _ := Next(j); s != ""; s, _ = Next(j) {
				if did = append(did, s); len(did) > len(closingSteps) || slices.Contains(openingSteps, s) {
					t.Fatalf("after %s: %v", openingSteps[n], did)
				}
				j.begin(s, time.Unix(3, 0), 3*time.Second)
				j.end(s, time.Unix(4, 0))
			}
			for step, because := range map[Step]Step{StartUnits: StopUnits, ResumeAgent: PauseAgent, Restore: RunCommand, DisarmRestart: ArmRestart} {
				if slices.Contains(did, step) != j.isBegun(because) {
					t.Errorf("after %s: %v", openingSteps[n], did)
				}
			}
			if did[len(did)-1] != Report {
				t.Errorf("after %s: %v ends without a report", openingSteps[n], did)
			}
		}
	}
}

func TestExitStatus(t *testing.T) {
	ran := journalAfter(string(RunCommand))
	journalWith := func(r CommandResult, troubles ...string) Journal {
		j := ran
		j.Run, j.Troubles = r, troubles
		return j
	}
	for what, test := range map[string]struct {
		j    Journal
		want int
	}{
		"well":                        {journalWith(CommandResult{ExitKnown: true}), 0},
		"failed":                      {journalWith(CommandResult{ExitKnown: true, Status: 3}), 3},
		"failed, and not back":        {journalWith(CommandResult{ExitKnown: true, Status: 3}, "web-0"), StatusNotBack},
		"signal":                      {journalWith(CommandResult{ExitKnown: true, Signal: 9}), 137},
		"limit":                       {journalWith(CommandResult{ExitKnown: true, Signal: 9, LimitPassed: true}), StatusLimit},
		"limit, and not back":         {journalWith(CommandResult{ExitKnown: true, Signal: 9, LimitPassed: true}, "web-0"), StatusNotBack},
		"refused":                     {journalAfter(string(Check)), StatusNotRun},
		"refused, kubelet not back":   {func() Journal { j := journalAfter(string(StopUnits)); j.Troubles = []string{"kubelet"}; return j }(), StatusNotBack},
		"could not be started":        {journalWith(CommandResult{NotStarted: "exec format error"}), StatusCannotRun},
		"status unknown after a kill": {journalWith(CommandResult{}), 0},
	} {
		if got := ExitStatus(test.j); got != test.want {
			t.Errorf("%s: %d, want %d", what, got, test.want)
		}
	}
}

func TestTheDeadlineIsInThePlan(t *testing.T) {
	p := Plan{Command: []string{"modprobe", "i40e"}, Limit: 4 * time.Minute, KillAfter: 5 * time.Second, Wait: 30 * time.Second, Stop: Kubelets[:1]}
	now := time.Date(2026, 3, 1, 11, 0, 0, 0, time.Local)
	text := strings.Join(p.lines(now, "/run/relink/guard/log"), "\n")
	for _, want := range []string{
		" 5. run for 4m0s at most: modprobe i40e", "deadline: kubelet.service is away for 4m50s at most, until about 11:04:50", "log: /run/relink/guard/log",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "warning") {
		t.Errorf("it warns:\n%s", text)
	}
	p.Limit = 5 * time.Minute
	if text := strings.Join(p.lines(now, ""), "\n"); !strings.Contains(text, "warning: Kubernetes evicts the pods of a node whose kubelet is silent for 5m0s") {
		t.Errorf("it does not warn:\n%s", text)
	}
	p.Stop = nil
	text = strings.Join(p.lines(now, ""), "\n")
	if strings.Contains(text, "deadline") || !strings.Contains(text, "the kubelet goes on: systemd knows none of kubelet.service, k3s-agent.service, k3s.service, ") {
		t.Errorf("without units:\n%s", text)
	}
}

func TestGatewaysOf(t *testing.T) {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	i := netstate.Interface{
		Addresses: []netstate.Address{{Prefix: prefix("10.9.0.5/24")}, {Prefix: prefix("10.3.0.5/24")}, {Prefix: prefix("fd00:3::5/64")}},
		Routes: []netstate.Route{
			{Gateway: addr("10.3.0.1")}, {Gateway: addr("10.3.0.1"), Table: 100}, {}, {Gateway: addr("fe80::1")}, {Gateway: addr("10.7.0.1"), Device: "net1"},
			{NextHops: []netstate.NextHop{{Gateway: addr("10.9.0.2")}, {Gateway: addr("10.8.0.1"), Device: "net1"}}}, {Gateway: addr("172.16.0.1")},
		},
	}
	want := []kernel.Solicitation{
		{Source: addr("10.3.0.5"), Target: addr("10.3.0.1")}, {Source: addr("fd00:3::5"), Target: addr("fe80::1")}, {Source: addr("10.9.0.5"), Target: addr("10.9.0.2")}, {Source: addr("10.9.0.5"), Target: addr("172.16.0.1")},
	}
	if got := gatewayQueries(i); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	i.Addresses = nil
	if got := gatewayQueries(i); got != nil {
		t.Errorf("without an address: %v", got)
	}
}

func TestThePauseFromBefore(t *testing.T) {
	limited, err := control.NewPause(time.Minute, "")
	if err != nil {
		t.Fatal(err)
	}
	over := limited
	over.Ends -= time.Minute
	for what, test := range map[string]struct {
		was  AgentPause
		want time.Duration
	}{
		"none":        {AgentPause{Paused: true}, 0},
		"still valid": {AgentPause{Paused: true, Previous: &limited}, time.Minute},
		"over":        {AgentPause{Paused: true, Previous: &over}, 0},
	} {
		if got := test.was.remaining(); got > test.want || got < test.want-30*time.Second {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := load(dir); !errors.Is(err, errNoJournal) {
		t.Errorf("an empty directory: %v", err)
	}
	j, err := newJournal(Plan{Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.save(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := load(dir); err != nil || got.ID != j.ID {
		t.Errorf("%+v, %v", got, err)
	}
	j.BootID = "another"
	if err := j.save(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := load(dir); !errors.Is(err, errNoJournal) {
		t.Errorf("of another boot: %v", err)
	}
	for text, want := range map[string]string{"{": "start the kubelet yourself, and remove the file", `{"version": 9}`: "has version 9, and this relink knows version 1"} {
		if err := os.WriteFile(filepath.Join(dir, "journal.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
