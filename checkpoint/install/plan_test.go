package install

import (
	"testing"
)

func TestDecideInstall(t *testing.T) {
	program := wanted{File{Path: "/p", Mode: programMode}, "new"}
	for name, test := range map[string]struct {
		ours   []string
		now    present
		force  bool
		action Action
		reason string
	}{
		"first":             {nil, present{}, false, Create, "it is not there"},
		"again":             {[]string{"new"}, present{true, "new", programMode}, false, Keep, "it is the same"},
		"upgrade":           {[]string{"old"}, present{true, "old", programMode}, false, Replace, "it is of another version"},
		"killed upgrade":    {[]string{"older", "old"}, present{true, "older", programMode}, false, Replace, "it is of another version"},
		"same, put by hand": {nil, present{true, "new", programMode}, false, Keep, "it is the same"},
		"not executable":    {[]string{"new"}, present{true, "new", textMode}, false, Replace, "its mode is 0644, not 0755"},
		"changed": {[]string{"old"}, present{true, "his", programMode}, false, Refuse,
			"it was changed since relink install put it there: move it away, or use --force to replace it"},
		"a stranger's": {nil, present{true, "his", programMode}, false, Refuse,
			"relink install has not put it there: move it away, or use --force to replace it"},
		"a stranger's, forced": {nil, present{true, "his", programMode}, true, Replace,
			"relink install has not put it there, and --force replaces it"},
		"a directory":         {nil, present{there: true}, false, Refuse, "it is no regular file: move it away"},
		"a directory, forced": {nil, present{there: true}, true, Refuse, "it is no regular file: move it away"},
	} {
		t.Run(name, func(t *testing.T) {
			action, reason := decideInstall(program, test.ours, test.now, test.force)
			if action != test.action || reason != test.reason {
				t.Errorf("%s: %s; want %s: %s", action, reason, test.action, test.reason)
			}
		})
	}
}

func TestDecideRemove(t *testing.T) {
	e := entry{"/p", []string{"old", "new"}}
	for name, test := range map[string]struct {
		now    present
		action Action
		reason string
	}{
		"as installed":  {present{true, "new", programMode}, Remove, "relink install has put it there"},
		"half upgraded": {present{true, "old", programMode}, Remove, "relink install has put it there"},
		"gone":          {present{}, Keep, "it is gone already"},
		"changed":       {present{true, "his", programMode}, Leave, "it was changed since relink install put it there"},
		"a link now":    {present{there: true}, Leave, "it was changed since relink install put it there"},
	} {
		t.Run(name, func(t *testing.T) {
			step := decideRemove(e, test.now)
			if step.Action != test.action || step.Reason != test.reason {
				t.Errorf("%s: %s; want %s: %s", step.Action, step.Reason, test.action, test.reason)
			}
		})
	}
}
