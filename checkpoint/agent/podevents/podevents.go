package podevents

import (
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/pkg/attachment"
)

// The reasons of events. Do not change them: people search for them and alert on them.
const (
	InterfaceLost          = "InterfaceLost"
	InterfaceRestored      = "InterfaceRestored"
	InterfaceRestoreFailed = "InterfaceRestoreFailed"
)

// Event is an event on a pod.
type Event struct {
	// Warning says that the event's type is Warning. Otherwise it is Normal.
	Warning bool
	// Reason is for programs, Message for people.
	Reason, Message string
}

// Recorder takes events. It returns at once: the agent's loop calls it.
type Recorder interface {
	Record(pod attachment.Pod, warning bool, reason, message string)
}

// NewObserver returns an observer that passes changes to the recorder as events.
func NewObserver(recorder Recorder) func(agent.Event) {
	return func(event agent.Event) {
		changes, _ := event.(agent.Changes)
		for _, c := range changes {
			if c.Pod == (attachment.Pod{}) {
				continue // This is not a sandbox of Kubernetes.
			}
			e := NewEvent(c)
			recorder.Record(c.Pod, e.Warning, e.Reason, e.Message)
		}
	}
}

// NewEvent is a pure function: it returns the event for a change. The message of a repeated loss is always the same, so that
// Kubernetes counts it and does not list it again.
func NewEvent(c agent.InterfaceChange) Event {
	name := fmt.Sprintf("Network interface %s (network %s)", c.Attachment.IfName, c.Attachment.Network)
	switch c.State {
	case agent.Back:
		return Event{Reason: InterfaceRestored, Message: fmt.Sprintf("%s is restored. It was lost for %s", name, roundDuration(c.Duration))}
	case agent.Stuck:
		return Event{Warning: true, Reason: InterfaceRestoreFailed, Message: fmt.Sprintf(
			"%s cannot be restored%s: %s. The agent goes on trying. Run \"relink status\" on the node: it says what is wrong", name, triesText(c.Tries), c.Reason)}
	}
	effect := "is lost"
	if c.Member { // The bond may have another NIC that carries the traffic.
		effect = "may be cut off"
	}
	return Event{Warning: true, Reason: InterfaceLost, Message: fmt.Sprintf("%s %s: %s. It will be restored when the device is back", name, effect, lossText(c))}
}

// lossText says what has gone.
func lossText(c agent.InterfaceChange) string {
	switch {
	case c.Member:
		return fmt.Sprintf("%s, a NIC of the bond %s, has gone", c.Device, c.Base)
	case c.Base == "" || c.Base == c.Device:
		return c.Device + " has gone"
	}
	return fmt.Sprintf("%s on %s has gone", c.Device, c.Base)
}

// triesText says how often the agent tried.
func triesText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (1 try)"
	}
	return fmt.Sprintf(" (%d tries)", n)
}

// roundDuration rounds a duration for people: 40ms, 6.1s, 1h2m3s.
func roundDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
