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

// To returns an Observer that passes changes to the recorder as events.
func To(r Recorder) agent.Observer { return teller{to: r} }

// teller hears only about changes: its Observers is empty.
type teller struct {
	agent.Observers
	to Recorder
}

// Changed implements agent.Observer.
func (t teller) Changed(changes []agent.Change) {
	for _, c := range changes {
		if c.Pod == (attachment.Pod{}) {
			continue // This is not a sandbox of Kubernetes.
		}
		e := Of(c)
		t.to.Record(c.Pod, e.Warning, e.Reason, e.Message)
	}
}

// Of is a pure function: it returns the event for a change. The message of a repeated loss is always the same, so that
// Kubernetes counts it and does not list it again.
func Of(c agent.Change) Event {
	name := fmt.Sprintf("Network interface %s (network %s)", c.Attachment.IfName, c.Attachment.Network)
	switch c.Fate {
	case agent.Back:
		return Event{Reason: InterfaceRestored, Message: fmt.Sprintf("%s is restored. It was lost for %s", name, length(c.For))}
	case agent.Stuck:
		return Event{Warning: true, Reason: InterfaceRestoreFailed, Message: fmt.Sprintf(
			"%s cannot be restored%s: %s. The agent goes on trying. Run \"relink status\" on the node: it says what is wrong", name, tries(c.Tries), c.Why)}
	}
	is := "is lost"
	if c.Member { // The bond may have another NIC that carries the traffic.
		is = "may be cut off"
	}
	return Event{Warning: true, Reason: InterfaceLost, Message: fmt.Sprintf("%s %s: %s. It will be restored when the device is back", name, is, gone(c))}
}

// gone says what has gone.
func gone(c agent.Change) string {
	switch {
	case c.Member:
		return fmt.Sprintf("%s, a NIC of the bond %s, has gone", c.Device, c.Base)
	case c.Base == "" || c.Base == c.Device:
		return c.Device + " has gone"
	}
	return fmt.Sprintf("%s on %s has gone", c.Device, c.Base)
}

// tries says how often the agent tried.
func tries(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (1 try)"
	}
	return fmt.Sprintf(" (%d tries)", n)
}

// length rounds a duration for people: 40ms, 6.1s, 1h2m3s.
func length(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
