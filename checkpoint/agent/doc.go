// Package agent watches a node, and restores what was lost with a parent as soon as the parent is back.
//
// An [Agent] has one loop (loop.go). Events only mark something as changed. An event is about a device of the host
// (kernel.Watch), a checkpoint (index.go), the end of a restore, a request on the control socket, or a timer. Then the
// loop looks at the devices again and compares them with what it knows of the attachments (member.go). Those on the same devices are on one
// stack, and the stacks on one NIC or bond are one chain (restore.Chains). Each chain has a state of its own, so a dead NIC delays no other
// chain. The work for one sandbox does not depend on how many there are: it changes its stack, and the chains follow only if there is
// another stack.
//
// decide (decide.go) is a pure function: it says what to do about a chain now, why, and when to look again. The
// restores run beside the loop. They read each record again under the sandbox's lock, so the records in the loop's
// memory are only a hint.
//
// The agent restores only losses (restore.Losses). If somebody changed an interface while its parent was there, that is
// drift: the agent reports it and leaves it alone.
package agent
