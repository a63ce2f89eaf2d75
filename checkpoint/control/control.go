package control

import (
	"cmp"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

const (
	// DefaultSocket is the path of the control socket.
	DefaultSocket = "/run/relink/agent.sock"
	// SocketEnv is the environment variable that names another path, for the agent and for its clients.
	SocketEnv = "RELINK_AGENT_SOCKET"
)

// Socket returns the path of the control socket: the one of the environment, else DefaultSocket.
func Socket() string { return cmp.Or(os.Getenv(SocketEnv), DefaultSocket) }

// The paths of the requests.
const (
	StatusPath = "/v1/status"
	PausePath  = "/v1/pause"
	ResumePath = "/v1/resume"
)

// Status is how the agent is, and what it sees on the node.
type Status struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// Paused is nil unless the agent is paused.
	Paused *Pause  `json:"paused,omitempty"`
	Chains []Chain `json:"chains"`
	Drift  []Drift `json:"drift"`
	// Owed is the number of attachments whose neighbours were not told yet.
	Owed int `json:"owed"`
}

// Pause is a time in which the agent restores nothing.
type Pause struct {
	Since time.Time `json:"since"`
	// Until is when the agent goes on by itself. It is zero if only a resume ends the pause.
	Until time.Time `json:"until,omitzero"`
	Why   string    `json:"why,omitempty"`
}

// ChainState is how a chain is: a base and everything that is stacked on it.
type ChainState string

const (
	// Whole says that everything on the base is as recorded, or differs by drift only.
	Whole ChainState = "whole"
	// Lost says that the base or a parent on it is gone.
	Lost ChainState = "lost"
	// Waiting says that the base is back, and the agent waits for the host to finish with it.
	Waiting ChainState = "waiting"
	// Restoring says that the agent rebuilds now.
	Restoring ChainState = "restoring"
	// BackingOff says that a restore failed, and the agent tries again at Chain.NextTry.
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
	// NextTry is zero unless the agent waits for a moment.
	NextTry time.Time `json:"nextTry,omitzero"`
	// Attachments is the number of attachments on the base. Lost is how many of them went with it.
	Attachments int `json:"attachments"`
	Lost        int `json:"lost"`
}

// Drift is an interface that somebody changed while its parent was there. The agent leaves it alone.
type Drift struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	Reason     string         `json:"reason"`
}

// PauseRequest asks the agent to restore nothing for a while.
type PauseRequest struct {
	// For is a duration such as "10m". An empty one means: until a resume.
	For string `json:"for,omitempty"`
	// Why is shown to whoever asks for the status.
	Why string `json:"why,omitempty"`
}

// Refusal is the answer to a request that was not carried out.
type Refusal struct {
	Error string `json:"error"`
}
