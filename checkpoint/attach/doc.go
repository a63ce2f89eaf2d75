// Package attach is the life of an attachment: ADD, CHECK, DEL, STATUS and GC of relink's CNI plugins.
//
// A [Plugin] is an interface plugin, such as relink-macvlan: its Parse turns a configuration into a
// [Request], and the rest is the same for all of them. An ADD builds the interface, gets its addresses,
// configures it, saves the checkpoint and prints the result. Each step notes how to take it back. A DEL
// goes the other way round and forgets the checkpoint first. [Chained] is relink-checkpoint, which
// remembers what another plugin of its list has built.
//
// Every command on a sandbox holds the sandbox's lock (checkpoint.Store).
package attach
