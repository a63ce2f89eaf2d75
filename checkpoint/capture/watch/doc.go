// Package watch keeps checkpoints up to date with the pods, without polling.
//
// A Refresher listens to the kernel's messages about sandboxes that have checkpoints. A change marks its sandbox. The
// Refresher renews the checkpoints of a marked sandbox by the rules of a capture (package capture): at once, and again
// when the sandbox has been quiet for a while. It limits how often it reads a sandbox, whatever the pod does (pace). It
// writes nothing if only the time differs.
//
// It also looks for sandboxes that have no checkpoints (survey.go), hears their changes over the same socket, and records their interfaces when they are
// quiet and no plugin is at work on them any more. What another program has detached it forgets.
//
// A capture refuses a state that is worse than the recorded one. A Refusal tells of it. It stays until the
// interface is as recorded again, or until somebody decides (relink capture --refresh, relink restore).
//
// When an interface goes down, the kernel reports that before it drops the interface's addresses and routes. So the
// Refresher knows whether a missing route was lost or was removed on purpose. It was removed on purpose if no device
// was down since the sandbox was last whole.
package watch
