package guard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// recordOn returns a record of a macvlan on these parents, the nearest first.
func recordOn(parents ...string) (r checkpoint.Record) {
	r.Interface.Link.Kind = netstate.KindMacvlan
	for _, name := range parents {
		r.Interface.Parents = append(r.Interface.Parents, netstate.Device{Name: name})
	}
	return r
}

func TestChooseVia(t *testing.T) {
	inside, nic := recordOn("eth5"), recordOn("eth6")
	inside.Interface.ParentsInSandbox, nic.Interface.Link.Kind = true, netstate.KindNIC
	one := []checkpoint.Record{recordOn("eth0.3", "eth0"), recordOn("eth0"), recordOn("eth2"), inside, nic}
	two := append([]checkpoint.Record{recordOn("bond4.3", "bond4")}, one...)
	for what, test := range map[string]struct {
		asked   []Via
		records []checkpoint.Record
		want    []Via
		err     string
	}{
		"none":                 {nil, one, nil, ""},
		"one base":             {[]Via{{New: "eth2"}}, one, []Via{{"eth0", "eth2"}}, ""},
		"both are named":       {[]Via{{"bond4", "eth2"}, {"eth0", "eth3"}}, two, []Via{{"bond4", "eth2"}, {"eth0", "eth3"}}, ""},
		"a VLAN device":        {[]Via{{"eth0.3", "eth2"}}, one, []Via{{"eth0.3", "eth2"}}, ""},
		"two bases":            {[]Via{{New: "eth2"}}, two, nil, "invalid --via eth2: pods are on bond4 and eth0: say whose pods to move: --via bond4=eth2 or --via eth0=eth2"},
		"all are there":        {[]Via{{New: "eth2"}}, []checkpoint.Record{recordOn("eth2.3", "eth2"), nic}, nil, "invalid --via eth2: no pod is on another device: leave --via out"},
		"one device twice":     {[]Via{{"eth0", "eth2"}, {"eth0", "eth3"}}, one, nil, "invalid --via eth0=eth2: --via eth0=eth3 takes pods away from the same device: name each device once, and one that stays"},
		"one that goes itself": {[]Via{{"eth0", "bond4"}, {"bond4", "eth2"}}, two, nil, "invalid --via eth0=bond4: --via bond4=eth2 takes pods away from the same device: name each device once, and one that stays"},
		"the same":             {[]Via{{"eth0", "eth0"}}, one, nil, "invalid --via eth0=eth0: --via eth0=eth0 takes pods away from the same device: name each device once, and one that stays"},
	} {
		got, err := chooseVia(test.asked, test.records)
		if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %v, %v, want %v, %s", what, got, err, test.want, test.err)
		}
	}
}

func TestNextWithVia(t *testing.T) {
	opened := []string{string(Check), string(Capture), string(PauseAgent), string(ArmRestart), string(MovePods), string(StopUnits)}
	ran := append(slices.Clone(opened), string(RunCommand))
	for what, test := range map[string]struct {
		j    Journal
		mut  func(*Journal)
		want Step
	}{
		"paused":                 {journalAfter(opened[:3]...), nil, ArmRestart},
		"armed":                  {journalAfter(opened[:4]...), nil, MovePods},
		"moved":                  {journalAfter(opened[:5]...), nil, StopUnits},
		"restored":               {journalAfter(append(ran, string(Restore))...), nil, MoveBack},
		"moved back":             {journalAfter(append(ran, string(Restore), string(MoveBack))...), nil, AskGateways},
		"refused at the pause":   {journalAfter(opened[:3]...), func(j *Journal) { j.Abandoned = "why" }, ResumeAgent},
		"refused at the move":    {journalAfter(opened[:5]...), func(j *Journal) { j.Abandoned = "why" }, MoveBack},
		"moved back, never run":  {journalAfter(append(opened[:5:5], string(MoveBack))...), func(j *Journal) { j.Abandoned = "why" }, AskGateways},
		"killed in the move":     {journalAfter(append(opened[:4:4], "-move the pods")...), func(j *Journal) { j.Abandoned, j.Resumed = "why", true }, MoveBack},
		"killed on the way back": {journalAfter(append(ran, string(Restore), "-move the pods back")...), func(j *Journal) { j.Resumed = true }, MoveBack},
	} {
		test.j.Plan.Via = []Via{{"eth0", "eth2"}}
		if test.mut != nil {
			test.mut(&test.j)
		}
		if got, _ := next(test.j); got.step != test.want {
			t.Errorf("%s: %q, want %q", what, got.step, test.want)
		}
	}
}

func TestTheCommandFailed(t *testing.T) {
	for what, test := range map[string]struct {
		r    CommandResult
		want bool
	}{
		"well":         {CommandResult{}, false},
		"a status":     {CommandResult{Status: 1}, true},
		"the limit":    {CommandResult{LimitPassed: true}, true},
		"an interrupt": {CommandResult{Interrupted: true}, true},
	} {
		if got := test.r.failed(); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

func TestThePlanWithVia(t *testing.T) {
	p := Plan{
		Command: []string{"modprobe", "i40e"}, Limit: 4 * time.Minute, KillAfter: 5 * time.Second, Wait: 30 * time.Second,
		Via: []Via{{"bond4", "eth2"}, {"eth0", "eth3"}},
	}
	text := strings.Join(p.lines(time.Now(), ""), "\n")
	for _, want := range []string{
		"command: modprobe i40e, for 4m0s at most\npods of bond4: meanwhile on eth2\npods of eth0: meanwhile on eth3\n",
		"the kubelet goes on: no pod is cut off",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "evicts") || strings.Contains(text, "deadline") {
		t.Errorf("without units:\n%s", text)
	}
	p.Stop, p.Force = Kubelets[:1], true
	text = strings.Join(p.lines(time.Now(), ""), "\n")
	if !strings.Contains(text, "kubelet.service is away for 5m50s at most") || strings.Contains(text, "goes on:") {
		t.Errorf("with units:\n%s", text)
	}
}
