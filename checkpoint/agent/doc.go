// Package agent watches a node, and restores what was lost with a parent as soon as the parent is back.
//
// An [Agent] has one loop (loop.go). Events only mark something as changed: a device of the host (kernel.Watch), a
// checkpoint (index.go), the end of a restore, a request on the control socket, a moment that was waited for. The loop
// then looks at the devices anew and compares them with the records that it has in memory. Records are grouped into chains
// by what they are on (restore.Chains), and each chain has a [state] of its own: one dead NIC delays nobody else.
//
// decide (decide.go) is a pure function: it says what to do about a chain now, why, and when to look again. The
// restores run beside the loop. They read each record again under the sandbox's lock, so what the loop has in
// memory is never more than a hint.
//
// The agent restores losses only (restore.Losses). What somebody changed while the parent was there is drift: the agent
// reports it and leaves it alone.
package agent
