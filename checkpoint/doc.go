// Package checkpoint remembers what was built for each attachment, so that it can be rebuilt.
//
// A [Record] is the checkpoint of one attachment: who it is of, in which network namespace, and what the
// interface and its parents are like. [Encode] and [Decode] are its format, docs/state-format.md. A
// [Store] keeps the records of a node in a directory, one file each. What cannot be read of it is an
// [Unreadable], which says what is left.
//
// Who changes something about a sandbox holds its lock: Store.Lock. Who builds on a VLAN parent holds
// [ParentLock] too, and a restore that changes the host's devices holds [HostLock]. Notes beside the
// checkpoints tell of a DEL that is under way (Store.BeginDetach) and of the last restore
// ([LastRestore]).
//
// [Match] says which record is of which device of a sandbox. Store.Effective says what of a record's
// interface there still has to be. The packages below use these: attach writes and forgets records
// for the plugins, capture writes those of what runs without one, restore rebuilds by them,
// and gc drops those of sandboxes that are gone.
package checkpoint
