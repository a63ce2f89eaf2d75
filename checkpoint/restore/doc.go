// Package restore decides what makes the kernel agree with the checkpoints again, and does it.
//
// Run is the whole of it, for a person who asks. relink-agent asks for the same (Restorer.Run), unasked: its Task (task.go) restores a Loss
// only, and takes only steps in the host that undo nobody's doing. A run (run.go) goes through these stages:
//
//   - locate (namespaces.go) finds the network namespaces of the records. A sandbox that is proven gone is
//     only reported.
//   - Chains (chains.go) groups the records by what they are on in the host. Each chain (chain.go) goes through
//     the following stages by itself, so that one dead NIC holds up nobody else.
//   - restoreParents (host.go) waits, looks and plans again until nothing is missing that may still appear. Then a
//     parentRestore (parent_restore.go) brings the parents back, under a lock of the store.
//   - restoreSandboxes (sandboxes.go) restores the attachments, those of different sandboxes beside each other. An attachmentRestore
//     (attachment.go) compares one with its record, carries out what is missing, and compares again.
//   - awaitCarrier waits for carrier, so that the neighbours can be told the addresses (announce.go).
//
// Plans are pure. A ParentPlan (parents.go, bond.go, find.go) decides on a picture of a namespace's devices which Steps bring the recorded
// parents back. planInterface (interface.go) compares a record with the live interface. A Step (step.go) is data: the action, the device,
// the reason, and what the action needs. apply (apply.go) is the one switch that carries steps out, in the host and in a sandbox. A dry run
// makes the same plan, carries nothing out, and returns the same Report.
//
// The Report has an Outcome for each attachment. checkpoint/status groups those that are not as recorded by what they
// have in common. Report.Devices says how the parents are.
package restore
