// Package move moves interfaces of running pods from one uplink of the host to another, so that nobody notices.
//
// Run is the whole of it:
//
//   - planMoves (plan.go) decides on the records and the host's devices which attachments move, and to which parents.
//     refusal decides on a look into the pod what cannot be moved, and why. Both are pure.
//   - prepareTargets (target.go) makes the new parents ready, and asks there for the pods' gateways.
//   - moveAttachment (act.go) moves one attachment under its sandbox's lock: it builds the new interface beside the old one
//     (kernel.BuildReplacement), lets it take the old one's place, tells the neighbours, and saves the record.
//   - verifyMoved (verify.go) has a restore compare everything with the records and repair what differs. Then it deletes the
//     old interfaces.
//
// Before anything is changed in a sandbox, a note (checkpoint.Move) says what belongs to the move. FinishKilled finishes
// what a kill has left: Run and a restore call it first. Revert moves attachments back to where a journal says that they
// were.
package move
