// Package capture writes checkpoints of what runs without one: pods that were attached before relink came, or by other plugins.
//
// [Run] looks into every sandbox of the node. Each interface that a checkpoint can hold is a [LiveInterface]:
// what it is like now, whose it is (an [Identity], from the CNI caches) and what the look alone decides about it.
// A pure function, decideSandbox, makes [InterfaceAction]s of these and of all that is remembered, each with its reason. Run decides each action again under the sandbox's lock, from what
// is there then. The result is an [InterfaceOutcome] of the [InterfaceReport].
//
// A pod that is being attached or detached has no checkpoint for a moment. So a second look follows at everything that
// was refused, has failed or could not be looked at.
//
// The agent does the same for one sandbox at a time (package watch): a [FirstRecording] writes the first checkpoints, once no plugin is at work any more
// ([Identities]), and a [Renewal] keeps them fresh, and forgets what another program has detached.
//
// [FindUnrecorded] is a dry run for what has no checkpoint: what relink check reports.
package capture
