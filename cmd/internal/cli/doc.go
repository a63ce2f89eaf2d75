// Package cli is what the commands for people share: how they run and which exit codes they have, their flags and what is wrong with a
// command line, and the screen with its tables.
package cli
