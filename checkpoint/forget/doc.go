// Package forget drops checkpoints that no DEL will drop any more: those of sandboxes that are proven gone.
//
// [NewPlan] reads the store and proves, for each checkpoint, whether its network namespace is there
// (sandbox.Prove). The decision is a pure function of that proof and of what the operator asked
// for. [Plan.Report] says what would be done. [Plan.Run] does it: under the sandbox's lock, and only
// if the checkpoint is still the one that was judged. Leases and interfaces are not touched.
package forget
