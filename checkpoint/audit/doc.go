// Package audit compares what is remembered of a node's pods with what is there: checkpoints, leases, live
// sandboxes, their interfaces, and owners.
//
// [Gather] gathers all of it at one moment, as plain data: a [Snapshot]. [Judge] is a pure function from a Snapshot to
// a [NodeReport]. A [Finding] is about one thing, and has its evidence in words and in fields. Nothing is changed.
// Package gc frees what a finding has proven dead.
//
// Somebody is known by container ID and interface name, by the identity of a network namespace, and by the
// fields of an owner. The names of pods are shown, and decide nothing.
//
// A sandbox without a checkpoint and without a lease of relink is somebody else's: there is no finding about it.
package audit
