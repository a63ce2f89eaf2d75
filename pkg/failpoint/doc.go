// Package failpoint marks the steps at which tests kill a program, or stop it for a while.
package failpoint
