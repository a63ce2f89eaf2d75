// Package failpoint marks the steps between which tests kill a program, or stop it for a while.
package failpoint
