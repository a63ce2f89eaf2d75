// Package install puts relink's programs and other files in their places on a node. It remembers what it has put there,
// and removes only that. Pure functions make the decisions, from the files that are there.
package install
