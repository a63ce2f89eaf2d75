// Package adopt writes checkpoints of what runs without one: pods that were attached before relink came, or by other plugins.
//
// [Run] looks into every sandbox of the node. Each interface that a checkpoint can hold is a [Found]:
// what it is like now, whose it is (an [Owner], from the CNI caches) and who made it (its [Origin]).
// All that was found and all that is remembered is a [Node]. [Decide] is a pure function from a Node
// to [Action]s, each with its reason. Each action is decided again under the sandbox's lock, from what
// is there then, and becomes an [Outcome] of the [Report].
//
// [Missing] is the look alone: what relink check reports.
package adopt
