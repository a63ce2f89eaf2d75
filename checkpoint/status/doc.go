// Package status says how the pods of a node are, why, and what to do. Its decisions are pure functions over what restore, capture and the
// agent have found.
package status
