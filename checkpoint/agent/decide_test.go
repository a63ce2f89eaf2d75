package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	grace, setUp := rules{grace: 2 * time.Second}, []restore.Step{{Action: restore.SetUp, Device: "eth0"}}
	type said struct {
		State                      control.ChainState
		Reason                     string
		Restore, AllowManagerSteps bool
		Next                       time.Duration // from now, 0 for none
	}
	for name, test := range map[string]struct {
		view  view
		rules rules
		want  said
	}{
		"nothing is lost":          {view{}, grace, said{State: control.Whole}},
		"a restore is under way":   {view{lost: 1, running: true, reason: "eth0 has gone", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Restoring, Reason: "eth0 has gone"}},
		"the base is away":         {view{lost: 2, reason: "eth0 has gone", Outlook: restore.Outlook{Missing: []string{"eth0 is not there"}}}, grace, said{State: control.Lost, Reason: "eth0 is not there"}},
		"the base is back and up":  {view{lost: 2, reason: "eth0 has gone", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 2)}}, grace, said{State: control.Restoring, Reason: "eth0 has gone", Restore: true}},
		"one base is back":         {view{lost: 2, reason: "eth0 has gone", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1), Missing: []string{"eth1 is not there"}}}, grace, said{State: control.Restoring, Reason: "eth0 has gone", Restore: true}},
		"the base is down":         {view{lost: 1, backSince: at(-time.Second), Outlook: restore.Outlook{Missing: []string{"eth0: it is down"}, ManagerSteps: setUp}}, grace, said{State: control.Waiting, Reason: "the host's network manager has 2s for this: set eth0 up", Next: time.Second}},
		"it is down for too long":  {view{lost: 1, backSince: at(-2 * time.Second), reason: "eth0 has gone", Outlook: restore.Outlook{ManagerSteps: setUp}}, grace, said{State: control.Restoring, Reason: "eth0 has gone", Restore: true, AllowManagerSteps: true}},
		"no time for the manager":  {view{lost: 1, backSince: now, reason: "eth0 has gone", Outlook: restore.Outlook{ManagerSteps: setUp}}, rules{}, said{State: control.Restoring, Reason: "eth0 has gone", Restore: true, AllowManagerSteps: true}},
		"pods do not wait for it":  {view{lost: 1, backSince: now, reason: "bond4 has gone", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1), ManagerSteps: setUp}}, grace, said{State: control.Restoring, Reason: "bond4 has gone", Restore: true}},
		"udev is at work":          {view{lost: 1, udevSince: at(-time.Second), Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1), UdevPending: []string{"eth0: udev"}}}, grace, said{State: control.Waiting, Reason: "eth0: udev", Next: 9 * time.Second}},
		"udev never ends":          {view{lost: 1, udevSince: at(-10 * time.Second), reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1), UdevPending: []string{"eth0: udev"}}}, grace, said{State: control.Restoring, Reason: "r", Restore: true}},
		"somebody set it down":     {view{lost: 1, Outlook: restore.Outlook{Blocked: []string{"eth0 is down: somebody made it so"}}}, grace, said{State: control.Lost, Reason: "eth0 is down: somebody made it so"}},
		"paused":                   {view{lost: 1, reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, rules{paused: true}, said{State: control.Lost, Reason: "r; the agent is paused"}},
		"paused for a while":       {view{lost: 1, reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, rules{paused: true, pauseEnds: at(time.Minute)}, said{State: control.Lost, Reason: "r; the agent is paused", Next: time.Minute}},
		"paused, nothing is lost":  {view{}, rules{paused: true}, said{State: control.Whole}},
		"a guard is at work":       {view{lost: 1, reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, rules{guarded: true}, said{State: control.Lost, Reason: "r; relink guard is at work", Next: 500 * time.Millisecond}},
		"a guard, nothing is lost": {view{}, rules{guarded: true}, said{State: control.Whole}},
		"it failed":                {view{lost: 1, failures: 1, lastTry: now, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.BackingOff, Reason: "busy", Next: 500 * time.Millisecond}},
		"it failed for some":       {view{attachments: 9, lost: 1, failures: 1, lastTry: now, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Lost, Reason: "busy", Next: 500 * time.Millisecond}},
		"it failed for all":        {view{attachments: 9, lost: 9, failures: 1, lastTry: now, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 9)}}, grace, said{State: control.BackingOff, Reason: "busy", Next: 500 * time.Millisecond}},
		"it failed again":          {view{lost: 1, failures: 3, lastTry: now, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.BackingOff, Reason: "busy", Next: 2 * time.Second}},
		"it has failed for ever":   {view{lost: 1, failures: 1000, lastTry: now, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.BackingOff, Reason: "busy", Next: time.Minute}},
		"something has changed":    {view{lost: 1, failures: 9, lastTry: at(-time.Second), changed: true, reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Restoring, Reason: "r", Restore: true}},
		"it changes all the time":  {view{lost: 1, failures: 9, lastTry: at(-100 * time.Millisecond), changed: true, failure: "busy", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.BackingOff, Reason: "busy", Next: 400 * time.Millisecond}},
		"the backoff has an end":   {view{lost: 1, failures: 2, lastTry: at(-time.Second), reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Restoring, Reason: "r", Restore: true}},
		"it comes and goes":        {view{lost: 1, restUntil: at(time.Second), reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Waiting, Reason: "r; it was lost 10 times in 30s, and is restored every 3s at most", Next: time.Second}},
		"it came and went":         {view{lost: 1, restUntil: now, reason: "r", Outlook: restore.Outlook{Ready: make([]checkpoint.Record, 1)}}, grace, said{State: control.Restoring, Reason: "r", Restore: true}},
		"nothing can be done":      {view{lost: 1, reason: "eth1, a member of bond4, has gone"}, grace, said{State: control.Lost, Reason: "eth1, a member of bond4, has gone"}},
		"it failed, and is whole":  {view{failures: 3, lastTry: now}, grace, said{State: control.Whole}},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(test.view, test.rules, now)
			got := said{State: d.State, Reason: d.Reason, Restore: d.restore, AllowManagerSteps: d.allowManagerSteps}
			if !d.NextTry.IsZero() {
				got.Next = d.NextTry.Sub(now)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decide() (-want +got):\n%s", diff)
			}
		})
	}
}
