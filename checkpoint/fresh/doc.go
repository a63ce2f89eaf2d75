// Package fresh keeps checkpoints as the pods are, without polling.
//
// A Refresher listens to what the kernel tells of the sandboxes that have checkpoints. A change marks its sandbox, and
// the sandbox's checkpoints are renewed by the rules of a capture (package adopt): at once, and again when the sandbox
// has been quiet for a while. How often a sandbox is read is bounded, whatever the pod does (pace). Nothing is written
// if nothing but the time differs.
//
// A capture refuses a state that is worse than the recorded one. Such a refusal is a Finding. It stays until the
// interface is as recorded again, or until somebody decides (relink capture --refresh, relink restore).
//
// The kernel tells that an interface is down before it drops the interface's addresses and routes. So the Refresher
// knows whether a missing route was lost or was taken away on purpose: if it has heard of no device down since the
// sandbox was last whole, it was on purpose.
package fresh
