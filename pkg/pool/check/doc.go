// Package check compares pools with their blocks, claims, nodes and owners, and says what is wrong and what ends it. It is pure: who calls it
// has read the objects.
package check
