package guard

import "slices"

// Step is one part of the work.
type Step string

// The steps in order. The steps before Command prepare it. The steps from Await on put everything back.
const (
	Check   Step = "check"
	Capture Step = "capture"
	Pause   Step = "pause the agent"
	Try     Step = "check the move"
	Note    Step = "note the units"
	Arm     Step = "arm the restart"
	Move    Step = "move the pods"
	Stop    Step = "stop the units"
	Command Step = "run the command"
	Await   Step = "await the command"
	Restore Step = "restore"
	Return  Step = "move the pods back"
	Verify  Step = "ask the gateways"
	Start   Step = "start the units"
	Resume  Step = "resume the agent"
	Disarm  Step = "disarm the restart"
	Report  Step = "report"
)

// The pods move before the units stop. A move takes time, and after a failed move the units go on.
var opening = []Step{Check, Capture, Pause, Try, Note, Arm, Move, Stop, Command}

// closing are the steps that put everything back. Each names the steps that make it necessary: if none of those was
// begun, there is nothing to put back. The restore comes before the move back: pods that were moved still have an
// uplink.
var closing = []struct {
	step    Step
	because []Step
}{
	{Await, []Step{Command}},
	{Restore, []Step{Command}},
	{Return, []Step{Move}},
	{Verify, []Step{Command, Move}},
	{Start, []Step{Stop}},
	{Resume, []Step{Pause}},
	{Disarm, []Step{Arm}},
	{Report, nil},
}

// has says whether the step belongs to the plan.
func (p Plan) has(s Step) bool { return len(p.Via) > 0 || s != Try && s != Move }

// Next returns the next step, and why. It returns an empty step if the journal is finished.
func Next(j Journal) (Step, string) {
	if !j.Finished.IsZero() {
		return "", "everything is finished"
	}
	if j.Abandoned == "" && !j.Resumed {
		for _, s := range opening {
			if j.Plan.has(s) && !j.done(s) {
				return s, "it is the next step on the way to the command"
			}
		}
	}
	for _, c := range closing {
		cause := slices.IndexFunc(c.because, j.begun)
		switch {
		case j.done(c.step):
		case c.because == nil:
			return c.step, "it is the last step"
		case cause < 0:
		case c.step == Await && j.done(Command):
		case c.step == Await:
			return c.step, "the guard was killed while the command ran"
		default:
			return c.step, "it follows from: " + string(c.because[cause])
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
	// A command that was ended by a signal has the status signalled plus the signal's number, as in a shell.
	signalled = 128
)

// ExitStatus returns the exit status for the outcome.
func ExitStatus(j Journal) int {
	switch c := j.Run; {
	case len(j.Troubles) > 0:
		return StatusNotBack
	case !j.begun(Command):
		return StatusNotRun
	case c.NotStarted != "":
		return StatusCannotRun
	case c.LimitPassed:
		return StatusLimit
	case c.Signal > 0:
		return signalled + c.Signal
	case !c.Known:
		return 0 // Everything is back. The report says that the command's status is not known.
	default:
		return c.Status
	}
}
