package install

import (
	"testing"
)

func TestDecideInstall(t *testing.T) {
	program := File{Path: "/p", Mode: programMode, sum: "new"}
	for name, test := range map[string]struct {
		ours    []string
		current fileState
		force   bool
		action  FileAction
		reason  string
	}{
		"first":             {nil, fileState{}, false, Create, "it is not there"},
		"again":             {[]string{"new"}, fileState{true, "new", programMode}, false, Keep, "it is the same"},
		"upgrade":           {[]string{"old"}, fileState{true, "old", programMode}, false, Replace, "it is of another version"},
		"killed upgrade":    {[]string{"older", "old"}, fileState{true, "older", programMode}, false, Replace, "it is of another version"},
		"same, put by hand": {nil, fileState{true, "new", programMode}, false, Keep, "it is the same"},
		"not executable":    {[]string{"new"}, fileState{true, "new", textMode}, false, Replace, "its mode is 0644, not 0755"},
		"changed": {[]string{"old"}, fileState{true, "his", programMode}, false, Refuse,
			"it was changed since relink install put it there: move it away, or use --force to replace it"},
		"a stranger's": {nil, fileState{true, "his", programMode}, false, Refuse,
			"relink install has not put it there: move it away, or use --force to replace it"},
		"a stranger's, forced": {nil, fileState{true, "his", programMode}, true, Replace,
			"relink install has not put it there, and --force replaces it"},
		"a directory":         {nil, fileState{exists: true}, false, Refuse, "it is no regular file: move it away"},
		"a directory, forced": {nil, fileState{exists: true}, true, Refuse, "it is no regular file: move it away"},
	} {
		t.Run(name, func(t *testing.T) {
			action, reason := decide(program, test.ours, test.current, test.force)
			if action != test.action || reason != test.reason {
				t.Errorf("%s: %s; want %s: %s", action, reason, test.action, test.reason)
			}
		})
	}
}

func TestDecideRemove(t *testing.T) {
	for name, test := range map[string]struct {
		current fileState
		action  FileAction
		reason  string
	}{
		"as installed":  {fileState{true, "new", programMode}, Remove, "relink install has put it there"},
		"half upgraded": {fileState{true, "old", programMode}, Remove, "relink install has put it there"},
		"gone":          {fileState{}, Keep, "it is gone already"},
		"changed":       {fileState{true, "his", programMode}, Leave, "it was changed since relink install put it there"},
		"a link now":    {fileState{exists: true}, Leave, "it was changed since relink install put it there"},
	} {
		t.Run(name, func(t *testing.T) {
			action, reason := decide(File{Path: "/p"}, []string{"old", "new"}, test.current, false)
			if action != test.action || reason != test.reason {
				t.Errorf("%s: %s; want %s: %s", action, reason, test.action, test.reason)
			}
		})
	}
}
