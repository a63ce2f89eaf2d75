// Package guard runs a command that takes NICs away, such as the upgrade of a driver, and brings everything
// back afterwards, whatever becomes of the command, of the terminal and of the guard itself.
//
// The work is a sequence of steps (Step). A Journal says what was begun and what is known. It is on disk
// before each step, so that another process can finish the work: Resume, by hand or from the timer that
// was armed before the kubelet was stopped. Next decides from a journal alone what comes next, and says
// why. ExitStatus decides what the outcome is worth. All else is in the steps, each of which can be done
// twice.
//
// With Plan.Via the pods are on another uplink while the command runs (via.go): the steps Try, Move and Return use
// checkpoint/move. A kill leaves every interface on one of the two uplinks, and Return finishes by the move's journal.
package guard
