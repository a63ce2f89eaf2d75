// Package install puts relink's programs and other files in their places on a node. It remembers what it has put there, and
// removes only that.
package install
