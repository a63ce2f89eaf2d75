// Package guard runs a command that takes NICs away, such as the upgrade of a driver, and brings everything
// back afterwards, whatever becomes of the command, of the terminal and of the guard itself.
//
// The work is a sequence of steps (Step). A Journal says what was begun and what is known. It is on disk
// before each step, so that another process can finish the work: Resume, by hand or from the timer that
// was armed before the kubelet was stopped. Next decides from a journal alone what comes next, and says
// why. ExitStatus decides what the outcome is worth. All else is in the steps, each of which can be done
// twice.
//
// An upgrade that moves the pods onto another uplink would do so between Stop and Command, and move them
// back between Command and Restore.
package guard
