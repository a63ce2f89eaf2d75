package guard

import "slices"

// Step is one part of the work.
type Step string

// The steps in order. The steps before Command prepare it. The steps from Await on put everything back.
const (
	Check         Step = "check"
	Capture       Step = "capture"
	PauseAgent    Step = "pause the agent"
	CheckMove     Step = "check the move"
	NoteUnits     Step = "note the units"
	ArmRestart    Step = "arm the restart"
	MovePods      Step = "move the pods"
	StopUnits     Step = "stop the units"
	RunCommand    Step = "run the command"
	AwaitCommand  Step = "await the command"
	Restore       Step = "restore"
	MoveBack      Step = "move the pods back"
	AskGateways   Step = "ask the gateways"
	StartUnits    Step = "start the units"
	ResumeAgent   Step = "resume the agent"
	DisarmRestart Step = "disarm the restart"
	Report        Step = "report"
)

// The pods move before the units stop. A move takes time, and after a failed move the units go on.
var openingSteps = []Step{Check, Capture, PauseAgent, CheckMove, NoteUnits, ArmRestart, MovePods, StopUnits, RunCommand}

// closingSteps are the steps that put everything back. Each names the steps that make it necessary: if none of those was
// begun, there is nothing to put back. The restore comes before the move back: pods that were moved still have an
// uplink.
var closingSteps = []struct {
	step   Step
	causes []Step
}{
	{AwaitCommand, []Step{RunCommand}},
	{Restore, []Step{RunCommand}},
	{MoveBack, []Step{MovePods}},
	{AskGateways, []Step{RunCommand, MovePods}},
	{StartUnits, []Step{StopUnits}},
	{ResumeAgent, []Step{PauseAgent}},
	{DisarmRestart, []Step{ArmRestart}},
	{Report, nil},
}

// includes says whether the step belongs to the plan.
func (p Plan) includes(s Step) bool { return len(p.Via) > 0 || s != CheckMove && s != MovePods }

// Next returns the next step, and why. It returns an empty step if the journal is finished.
func Next(j Journal) (Step, string) {
	if !j.Finished.IsZero() {
		return "", "everything is finished"
	}
	if j.Abandoned == "" && !j.Resumed {
		for _, s := range openingSteps {
			if j.Plan.includes(s) && !j.isDone(s) {
				return s, "it is the next step on the way to the command"
			}
		}
	}
	for _, c := range closingSteps {
		cause := slices.IndexFunc(c.causes, j.isBegun)
		switch {
		case j.isDone(c.step):
		case c.causes == nil:
			return c.step, "it is the last step"
		case cause < 0:
		case c.step == AwaitCommand && j.isDone(RunCommand):
		case c.step == AwaitCommand:
			return c.step, "the guard was killed while the command ran"
		default:
			return c.step, "it follows from: " + string(c.causes[cause])
		}
	}
	return "", "everything is finished"
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
	// A command that was ended by a signal has the status signalBase plus the signal's number, as in a shell.
	signalBase = 128
)

// ExitStatus returns the exit status for the outcome.
func ExitStatus(j Journal) int {
	switch c := j.Run; {
	case len(j.Troubles) > 0:
		return StatusNotBack
	case !j.isBegun(RunCommand):
		return StatusNotRun
	case c.NotStarted != "":
		return StatusCannotRun
	case c.LimitPassed:
		return StatusLimit
	case c.Signal > 0:
		return signalBase + c.Signal
	case !c.ExitKnown:
		return 0 // Everything is back. The report says that the command's status is not known.
	default:
		return c.Status
	}
}
