// Package netfix writes checkpoints of the pods that i40e_net_fix remembers, from its files and from what is there of them.
//
// [Parse] reads a [File] of that tool. A [Candidate] is a file and the [SandboxState] that its netns leads to now. The
// files do not tell what an interface was on: [ParentSpec] is what the operator says. [Decide] is a pure
// function from these and from what is remembered (a [Node]) to one [FileOutcome] for each file. [Run]
// decides again under the sandbox's lock, and writes. A record says by its writer whether it is of a
// live interface or from a file alone: only the latter can be replaced by another import.
package netfix
