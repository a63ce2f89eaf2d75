// Package agent watches a node, and restores what was lost with a parent as soon as the parent is back.
//
// An [Agent] has one loop (loop.go). Events only mark something as changed. An event is about a device of the host
// (kernel.Watch), a checkpoint (index.go), the end of a restore, a request on the control socket, or a timer. Then the
// loop looks at the devices again and compares them with the records in its memory. It groups the records into chains
// by what they are on (restore.Chains). Each chain has a state of its own, so a dead NIC delays no other chain.
//
// decide (decide.go) is a pure function: it says what to do about a chain now, why, and when to look again. The
// restores run beside the loop. They read each record again under the sandbox's lock, so the records in the loop's
// memory are only a hint.
//
// The agent restores only losses (restore.Losses). If somebody changed an interface while its parent was there, that is
// drift: the agent reports it and leaves it alone.
package agent
