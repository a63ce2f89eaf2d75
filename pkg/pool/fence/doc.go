// Package fence notes in the blocks of all pools that a node is dead, because a person says so. The controller does the same by a taint.
// But a taint needs the Node object and the controller, and it is about the whole node.
//
// [NewPlan] reads what the node has, and changes nothing. A person decides by what it shows. [Plan.Run] then changes each block only if the
// node has not touched it since: who answers is not dead.
package fence
