package guard

import (
	"context"
	"slices"
)

// Step is one part of the work.
type Step string

// The steps in order. The steps up to RunCommand are the opening ones. The others put everything back.
const (
	Check         Step = "check"
	Capture       Step = "capture"
	PauseAgent    Step = "pause the agent"
	ArmRestart    Step = "arm the restart"
	MovePods      Step = "move the pods"
	StopUnits     Step = "stop the units"
	RunCommand    Step = "run the command"
	Restore       Step = "restore"
	MoveBack      Step = "move the pods back"
	AskGateways   Step = "ask the gateways"
	StartUnits    Step = "start the units"
	ResumeAgent   Step = "resume the agent"
	DisarmRestart Step = "disarm the restart"
	Report        Step = "report"
)

// stepRule says how to do a step, and when. Each step can be done twice.
type stepRule struct {
	step Step
	run  func(*guard, context.Context) error
	// causes make a closing step necessary: if none of them was begun, there is nothing to put back.
	causes []Step
}

// The pods move before the units stop. A move takes time, and after a failed move the units go on.
var openingSteps = []stepRule{
	{step: Check, run: (*guard).check}, {step: Capture, run: (*guard).capture}, {step: PauseAgent, run: (*guard).pauseAgent},
	{step: ArmRestart, run: (*guard).armRestart}, {step: MovePods, run: (*guard).movePods}, {step: StopUnits, run: (*guard).stopUnits},
	{step: RunCommand, run: (*guard).runCommand},
}

// closingSteps begin with the command, which lives on after a kill of the guard. The restore comes before the move back: pods that
// were moved still have an uplink.
var closingSteps = []stepRule{
	{RunCommand, (*guard).runCommand, []Step{RunCommand}},
	{Restore, (*guard).restore, []Step{RunCommand}},
	{MoveBack, (*guard).moveBack, []Step{MovePods}},
	{AskGateways, (*guard).verify, []Step{RunCommand, MovePods}},
	{StartUnits, (*guard).startUnits, []Step{StopUnits}},
	{ResumeAgent, (*guard).resumeAgent, []Step{PauseAgent}},
	{DisarmRestart, (*guard).disarmRestart, []Step{ArmRestart}},
	{step: Report, run: (*guard).report},
}

// next is a pure function: it returns the next step, and whether that is an opening one. It returns an empty step if the journal is
// finished.
func next(j Journal) (rule stepRule, opening bool) {
	if !j.Finished.IsZero() {
		return stepRule{}, false
	}
	if j.Abandoned == "" && !j.Resumed {
		for _, rule := range openingSteps {
			if !j.isDone(rule.step) && (rule.step != MovePods || len(j.Plan.Via) > 0) {
				return rule, true
			}
		}
	}
	for _, rule := range closingSteps {
		if !j.isDone(rule.step) && (rule.causes == nil || slices.ContainsFunc(rule.causes, j.isBegun)) {
			return rule, false
		}
	}
	return stepRule{}, false
}

// Exit statuses of a guard, like those of timeout(1) and xargs(1). All other statuses are the command's.
const (
	// StatusNotBack says that something is not back, whatever the command's own status is.
	StatusNotBack = 123
	// StatusLimit says that the guard ended the command at its limit, and that everything is back.
	StatusLimit = 124
	// StatusNotRun says that the command was not run.
	StatusNotRun = 125
	// StatusCannotRun and StatusNotFound say that the command cannot be run, or does not exist.
	StatusCannotRun = 126
	StatusNotFound  = 127
)

// ExitStatus returns the exit status for the outcome.
func ExitStatus(j Journal) int {
	switch {
	case len(j.Troubles) > 0:
		return StatusNotBack
	case j.Abandoned != "":
		return StatusNotRun
	case j.Run.LimitPassed:
		return StatusLimit
	}
	return j.Run.Status
}
