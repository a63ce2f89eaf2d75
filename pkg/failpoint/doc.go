// Package failpoint marks the steps between which the crash tests kill a program.
package failpoint
