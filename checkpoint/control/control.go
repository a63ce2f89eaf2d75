package control

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/sandbox"
)

const (
	// DefaultSocket is the path of the control socket.
	DefaultSocket = "/run/relink/agent.sock"
	// SocketEnv is the environment variable that names another path, for the agent and for its clients.
	SocketEnv = "RELINK_AGENT_SOCKET"
)

// Socket returns the path of the control socket: the value of SocketEnv, or DefaultSocket.
func Socket() string { return cmp.Or(os.Getenv(SocketEnv), DefaultSocket) }

// The paths of the requests.
const (
	StatusPath = "/v1/status"
	PausePath  = "/v1/pause"
	ResumePath = "/v1/resume"
	// OwnerPath is for an owner.Question, ClaimPath for an owner.Fulfilment.
	OwnerPath = "/v1/owner"
	ClaimPath = "/v1/claim"
	// OwnersPath is for a list of owners that are to be judged.
	OwnersPath    = "/v1/owners"
	SandboxesPath = "/v1/sandboxes"
	// RefillPath is for a pool.Demand, AcquirePath for a pool.Acquisition, PoolClaimPath for a pool.ClaimedAddress, PoolImportPath for a
	// pool.Import.
	RefillPath     = "/v1/pool/refill"
	AcquirePath    = "/v1/pool/acquire"
	PoolClaimPath  = "/v1/pool/claim"
	PoolImportPath = "/v1/pool/import"
)

// MaxOwners is how many owners one request of OwnersPath can have.
const MaxOwners = 100

// Status is the state of the agent, and what it sees on the node.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// Paused is nil unless the agent is paused.
	Paused *Pause  `json:"paused,omitempty"`
	Chains []Chain `json:"chains"`
	Drift  []Drift `json:"drift"`
	// Unrecorded are the interfaces of pods on devices of the host that have no checkpoint: nothing brings them back.
	Unrecorded []Unrecorded `json:"unrecorded"`
	// Unannounced is the number of attachments that were not announced to their neighbours yet.
	Unannounced int `json:"owed"`
	// Audit is the last one, nil before the first.
	Audit *Audit `json:"audit,omitempty"`
}

// Audit is what the agent's last audit has found, and what it has freed.
type Audit struct {
	Time time.Time     `json:"at"`
	Took time.Duration `json:"tookNanoseconds"`
	// Findings has the number of findings of each kind. Errors is how many of them are errors, and FirstError the first of these
	// in words.
	Findings   map[string]int `json:"findings"`
	Errors     int            `json:"errors"`
	FirstError string         `json:"first,omitempty"`
	// Freed, Waiting and Failed count leases, reservations and checkpoints. Waiting were seen dead, but not yet for long enough.
	Freed   int `json:"freed"`
	Waiting int `json:"waiting"`
	Failed  int `json:"failed"`
	// Problem says what could not be looked at, or why there was no audit.
	Problem string `json:"problem,omitempty"`
}

// Pause is a time during which the agent restores nothing.
type Pause struct {
	Since time.Time `json:"since"`
	// Until is when the pause ends by itself, by the date that the node had when the pause began. It is zero if only a
	// resume ends the pause. It is for people: Remaining counts.
	Until time.Time `json:"until,omitzero"`
	// Ends is the end as a time since the boot BootID, in nanoseconds (boot.Uptime): nobody can set that clock.
	Ends   time.Duration `json:"endsNanoseconds,omitempty"`
	BootID string        `json:"bootID,omitempty"`
	Reason string        `json:"why,omitempty"`
}

// NewPause returns a pause that begins now. Length 0 means until a resume.
func NewPause(length time.Duration, reason string) (Pause, error) {
	p := Pause{Since: time.Now().UTC(), Reason: reason}
	if length <= 0 {
		return p, nil
	}
	uptime, err := boot.Uptime()
	if err == nil {
		p.BootID, err = boot.ID()
	}
	if err != nil {
		return p, fmt.Errorf("pause for %s: %w", length, err)
	}
	p.Until, p.Ends = p.Since.Add(length), uptime+length
	return p, nil
}

// Remaining returns how long the pause still lasts: 0 if it is over, as it is after a boot. limited is false if only a resume
// ends the pause.
func (p Pause) Remaining() (remaining time.Duration, limited bool) {
	if p.Ends == 0 {
		return 0, false
	}
	uptime, err := boot.Uptime()
	if id, failed := boot.ID(); err != nil || failed != nil || id != p.BootID {
		return 0, true
	}
	return max(0, p.Ends-uptime), true
}

// ChainState is the state of a chain: a base and everything that is stacked on it.
type ChainState string

const (
	// Whole says that everything on the base is as recorded, or differs by drift only.
	Whole ChainState = "whole"
	// Lost says that the base or a parent on it is gone.
	Lost ChainState = "lost"
	// Waiting says that the base is back, but the host has not finished with it. The agent waits for that.
	Waiting ChainState = "waiting"
	// Restoring says that the agent rebuilds interfaces now.
	Restoring ChainState = "restoring"
	// BackingOff says that a restore failed. The agent tries again at Chain.NextTry.
	BackingOff ChainState = "backing off"
)

// Chain is a base with the attachments on it.
type Chain struct {
	// Base is the name of the lowest parent: a NIC or a bond.
	Base  string     `json:"base"`
	State ChainState `json:"state"`
	// Since is when the chain came into this state.
	Since time.Time `json:"since"`
	// Reason says why the chain is not whole.
	Reason string `json:"reason,omitempty"`
	// NextTry is when the agent tries or decides again. It is zero if only an event causes that.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Attachments is the number of attachments on the base. Lost is how many of them are lost.
	Attachments int `json:"attachments"`
	Lost        int `json:"lost"`
}

// Drift is an interface that somebody changed while its parent was there. The agent leaves it alone.
type Drift struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	Reason     string         `json:"reason"`
}

// Unrecorded is an interface of a pod that has no checkpoint.
type Unrecorded struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	// Netns is the path of the network namespace.
	Netns string `json:"netns"`
	// Base is the NIC or bond that the interface is on, empty if that is not known or if the interface is a NIC.
	Base string `json:"base,omitempty"`
	// Obstacle says in a word why it has none (capture.Obstacle), and Reason in words.
	Obstacle string `json:"obstacle"`
	Reason   string `json:"reason"`
}

// PauseRequest asks the agent to restore nothing for a while.
type PauseRequest struct {
	// Length is a duration such as "10m". Empty means until a resume.
	Length string `json:"for,omitempty"`
	// Reason is shown to everybody who asks for the status.
	Reason string `json:"why,omitempty"`
}

// Sandboxes are those that the container runtime of the node has.
type Sandboxes struct {
	Sandboxes []sandbox.RuntimeSandbox `json:"sandboxes"`
	// Incomplete says why there may be more. It is empty if these are all.
	Incomplete string `json:"incomplete,omitempty"`
}
