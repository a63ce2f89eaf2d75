package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/statefile"
)

// journalVersion is the version of the journal's format.
const journalVersion = 1

// Journal is what is known about a guard. It is one file in the guard's directory.
type Journal struct {
	Version int `json:"version"`
	// ID is in the names of the guard's units.
	ID string `json:"id"`
	// BootID is the ID of the machine's boot. A journal of an earlier boot is ignored: no pod and no kubelet outlives a
	// boot.
	BootID    string    `json:"bootID"`
	Plan      Plan      `json:"plan"`
	StartedAt time.Time `json:"startedAt"`
	// Steps are the steps that were begun, in order.
	Steps []StepTimes `json:"steps,omitempty"`
	// Abandoned says why the command is not run. It is empty if the command will run, or has run.
	Abandoned string `json:"abandoned,omitempty"`
	// Resumed says that another process took over after the guard was killed.
	Resumed bool `json:"resumed,omitempty"`
	// Checkpoints is how many there were before the command.
	Checkpoints int `json:"checkpoints,omitempty"`
	// Gateways are the gateways that answered before the command.
	Gateways []Gateway `json:"gateways,omitempty"`
	// AgentPaused says that the guard has paused relink-agent.
	AgentPaused bool `json:"agentPaused,omitempty"`
	// Units are those that the guard found running.
	Units []string      `json:"units,omitempty"`
	Run   CommandResult `json:"run,omitzero"`
	// Troubles name what is not back.
	Troubles []string  `json:"troubles,omitempty"`
	Finished time.Time `json:"finished,omitzero"`
	// Status is the guard's exit status, once it has finished.
	Status int `json:"status"`
}

// StepTimes says when a step was begun and when it was done. Ended is zero for a step that is under way, or was when the
// guard was killed.
type StepTimes struct {
	Step  Step      `json:"step"`
	Begun time.Time `json:"begun"`
	// Uptime is Begun as a time since the boot, in nanoseconds. Limits count from it: nobody can set that clock.
	Uptime time.Duration `json:"uptimeNanoseconds"`
	Ended  time.Time     `json:"done,omitzero"`
}

// Gateway is a router that an attachment sends to, and the attachment's address that asks for the router.
type Gateway struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	kernel.Solicitation
}

// CommandResult is what became of the command.
type CommandResult struct {
	// Status is the exit status, or 128 plus the number of the signal that ended the command.
	Status int `json:"status,omitempty"`
	// LimitPassed says that the guard ended the command because it took too long. Interrupted says that somebody
	// interrupted it.
	LimitPassed bool `json:"limitPassed,omitempty"`
	Interrupted bool `json:"interrupted,omitempty"`
	// Remaining are processes of the command that still live.
	Remaining []string `json:"left,omitempty"`
}

// times returns the times of the step, nil if it was not begun.
func (j *Journal) times(s Step) *StepTimes {
	for i := range j.Steps {
		if j.Steps[i].Step == s {
			return &j.Steps[i]
		}
	}
	return nil
}

func (j *Journal) isBegun(s Step) bool { return j.times(s) != nil }

func (j *Journal) isDone(s Step) bool {
	t := j.times(s)
	return t != nil && !t.Ended.IsZero()
}

// begin notes that the step is begun. A step that is begun again keeps its place.
func (j *Journal) begin(s Step, instant time.Time, uptime time.Duration) {
	if !j.isBegun(s) {
		j.Steps = append(j.Steps, StepTimes{Step: s, Begun: instant, Uptime: uptime})
	}
}

// sinceBegun returns the time since the step was begun, 0 if it was not.
func (j *Journal) sinceBegun(s Step) time.Duration {
	t := j.times(s)
	if t == nil {
		return 0
	}
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	return uptime - t.Uptime
}

func (j *Journal) end(s Step, instant time.Time) {
	if t := j.times(s); t != nil {
		t.Ended = instant
	}
}

// current returns the step that is under way, or else the last one.
func (j *Journal) current() StepTimes {
	if len(j.Steps) == 0 {
		return StepTimes{Step: Check, Begun: j.StartedAt}
	}
	return j.Steps[len(j.Steps)-1]
}

func journalPath(dir string) string { return filepath.Join(dir, "journal.json") }

// save writes the journal. It is on disk when save returns.
func (j *Journal) save(dir string) error {
	if err := statefile.Save(journalPath(dir), j); err != nil {
		return fmt.Errorf("guard's journal: %w", err)
	}
	return nil
}

// errNoJournal means that no guard has run since the boot.
var errNoJournal = errors.New("no guard has run since the boot")

// load reads the journal of the last guard. It returns errNoJournal if there is none of this boot.
func load(dir string) (Journal, error) {
	var j Journal
	if err := statefile.Load(journalPath(dir), &j); errors.Is(err, fs.ErrNotExist) {
		return Journal{}, errNoJournal
	} else if err != nil {
		return Journal{}, fmt.Errorf("guard's journal %w: start the kubelet yourself, and remove the file", err)
	}
	if j.Version != journalVersion {
		return Journal{}, fmt.Errorf("guard's journal %s has version %d, and this relink knows version %d: use the relink that wrote it", journalPath(dir), j.Version, journalVersion)
	}
	id, err := boot.ID()
	if err != nil {
		return Journal{}, err
	}
	if j.BootID != id {
		return Journal{}, errNoJournal
	}
	return j, nil
}
