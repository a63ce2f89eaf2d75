// Package selection finds out which attachments a command line names.
//
// Every verb of the command names things in the same way: pods as [NAMESPACE/]POD, sandboxes by their
// container ID or the beginning of it, and all attachments of a namespace, a network or a parent. The verbs
// differ in where the attachments come from: checkpoints, running sandboxes, leases. Each of these hands over
// its attachments as Candidates, and Choose says which of them are meant.
package selection
