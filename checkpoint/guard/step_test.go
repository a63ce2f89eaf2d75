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
	opened := []string{string(Check), string(Capture), string(PauseAgent), string(ArmRestart), string(StopUnits)}
	ran := append(slices.Clone(opened), string(RunCommand))
	for what, test := range map[string]struct {
		j    Journal
		mut  func(*Journal)
		want Step
	}{
		"nothing done":                       {journalAfter(), nil, Check},
		"half a check":                       {journalAfter("-check"), nil, Check},
		"everything open":                    {journalAfter(opened...), nil, RunCommand},
		"the command has run":                {journalAfter(ran...), nil, Restore},
		"restored":                           {journalAfter(append(ran, "restore")...), nil, AskGateways},
		"asked":                              {journalAfter(append(ran, "restore", "ask the gateways")...), nil, StartUnits},
		"started":                            {journalAfter(append(ran, "restore", "ask the gateways", "start the units")...), nil, ResumeAgent},
		"the agent goes on":                  {journalAfter(append(ran, "restore", "ask the gateways", "start the units", "resume the agent")...), nil, DisarmRestart},
		"disarmed":                           {journalAfter(append(ran, "restore", "ask the gateways", "start the units", "resume the agent", "disarm the restart")...), nil, Report},
		"finished":                           {journalAfter(ran...), func(j *Journal) { j.Finished = time.Unix(3, 0) }, ""},
		"refused at the check":               {journalAfter("check"), func(j *Journal) { j.Abandoned = "why" }, Report},
		"refused after the pause":            {journalAfter("check", "capture", "pause the agent"), func(j *Journal) { j.Abandoned = "why" }, ResumeAgent},
		"refused at the stop":                {journalAfter(append(opened[:4:4], "-stop the units")...), func(j *Journal) { j.Abandoned = "why" }, StartUnits},
		"killed at the stop":                 {journalAfter(append(opened[:4:4], "-stop the units")...), func(j *Journal) { j.Abandoned, j.Resumed = "why", true }, StartUnits},
		"killed while the command ran":       {journalAfter(append(opened[:5:5], "-run the command")...), func(j *Journal) { j.Resumed = true }, RunCommand},
		"killed after the command was noted": {journalAfter(ran...), func(j *Journal) { j.Resumed = true }, Restore},
		"killed in the restore":              {journalAfter(append(ran, "-restore")...), func(j *Journal) { j.Resumed = true }, Restore},
	} {
		if test.mut != nil {
			test.mut(&test.j)
		}
		if got, _ := next(test.j); got.step != test.want {
			t.Errorf("%s: %q, want %q", what, got.step, test.want)
		}
	}
}

// After any kill, a resume comes to an end. It starts the kubelet if that was stopped, and does nothing twice.
func TestNextComesToAnEnd(t *testing.T) {
	for n := range openingSteps {
		for _, half := range []bool{false, true} {
			var j Journal
			for i, rule := range openingSteps[:n+1] {
				j.begin(rule.step, time.Unix(1, 0), 1*time.Second)
				if i < n || !half {
					j.end(rule.step, time.Unix(2, 0))
				}
			}
			j.Resumed = true
			if !j.isBegun(RunCommand) {
				j.Abandoned = "killed"
			}
			var did []Step
			for rule, opening := next(j); rule.step != ""; rule, opening = next(j) {
				if did = append(did, rule.step); len(did) > len(closingSteps) || opening {
					t.Fatalf("after %s: %v", openingSteps[n].step, did)
				}
				j.begin(rule.step, time.Unix(3, 0), 3*time.Second)
				j.end(rule.step, time.Unix(4, 0))
			}
			for step, because := range map[Step]Step{StartUnits: StopUnits, ResumeAgent: PauseAgent, MoveBack: MovePods, Restore: RunCommand, DisarmRestart: ArmRestart} {
				if slices.Contains(did, step) != j.isBegun(because) {
					t.Errorf("after %s: %v", openingSteps[n].step, did)
				}
			}
			if did[len(did)-1] != Report {
				t.Errorf("after %s: %v ends without a report", openingSteps[n].step, did)
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
		"well":                      {journalWith(CommandResult{}), 0},
		"failed":                    {journalWith(CommandResult{Status: 3}), 3},
		"failed, and not back":      {journalWith(CommandResult{Status: 3}, "web-0"), StatusNotBack},
		"signal":                    {journalWith(CommandResult{Status: 137}), 137},
		"limit":                     {journalWith(CommandResult{Status: 137, LimitPassed: true}), StatusLimit},
		"limit, and not back":       {journalWith(CommandResult{Status: 137, LimitPassed: true}, "web-0"), StatusNotBack},
		"refused":                   {Journal{Abandoned: "why"}, StatusNotRun},
		"refused, kubelet not back": {Journal{Abandoned: "why", Troubles: []string{"kubelet"}}, StatusNotBack},
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
		"command: modprobe i40e, for 4m0s at most", "deadline: kubelet.service is away for 4m50s at most, until about 11:04:50", "log: /run/relink/guard/log",
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
