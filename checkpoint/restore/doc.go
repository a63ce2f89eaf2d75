// Package restore decides what makes the kernel agree with the checkpoints again, and does it.
//
// Run is the whole of it, for whoever asks for a restore. Its restoreRun goes through these stages:
//
//   - locateNamespaces (namespaces.go) finds the network namespaces of the records. A sandbox that is proven gone is
//     only reported.
//   - Chains (chains.go) groups the records by what they are on in the host. Each chain (chain.go) goes through
//     the following stages by itself, so that one dead NIC holds up nobody else.
//   - A ParentPlan (parents.go, bond.go, find.go, match.go) decides on a picture of the host's devices which
//     Steps bring the recorded parents back. It is pure: Run waits (wait.go), looks and plans again until
//     nothing is missing that may still appear.
//   - A stepRunner (step_run.go, host.go) carries the steps in the host out, under a lock of the store.
//   - An attachmentRestore (attachment.go) does one attachment: planInterface (interface.go) compares the record with the live
//     interface, and the Steps that it plans are carried out in the sandbox. Sandboxes are done beside each
//     other (sandboxes.go).
//   - awaitCarrier (carrier.go) waits for carrier, so that the neighbours can be told the addresses
//     (announce.go).
//
// A Restorer (restorer.go) does the same for one chain, and unasked: relink-agent uses it. It restores a Loss only
// (loss.go), and takes only steps in the host that undo nobody's doing (task.go).
//
// A Step (step.go) is data: the action, the device, the reason, and what the action needs. A dry run makes the same
// plan, carries nothing out, and returns the same Report.
//
// The Report has an Outcome for each attachment. Causes groups those that are not as recorded by what they
// have in common. Report.Devices says how the parents are.
package restore
