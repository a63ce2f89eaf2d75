// Package gc frees what an audit has proven dead: the address of a sandbox that is gone, the reservation of an
// owner that is gone, and the checkpoint of a sandbox that is gone.
//
// [Decide] is a pure function from an audit's report and earlier sightings to [PassOutcome]s, each with its reason. What is
// proven dead must be seen twice, at least a grace apart, without a pass in between that saw something else. Each pass
// notes its sightings beside the checkpoints (.agent/gc.json), for the agent and for relink gc.
//
// [Run] looks, decides, and frees, one thing after the other. It frees a thing only if that is still as it was judged:
// a holder by container ID, interface, time and namespace; a reservation by all of its fields; a checkpoint under the
// lock of its sandbox. Owners are asked for once more right before. A failure ends nothing else, and is reported. Who
// cannot be asked proves nothing: what depends on that is kept.
package gc
