// Package guard runs a command that takes NICs away, such as the upgrade of a driver. Afterwards it brings everything
// back, even if the command fails, the terminal dies, or the guard itself is killed.
//
// The work is a sequence of steps (Step). A Journal says which steps were begun and what is known. It is on disk before
// each step, so another process can finish the work (Finish). An operator starts that process, or the timer that was
// armed before the kubelet was stopped. next decides the next step from the journal alone. ExitStatus turns the outcome
// into an exit status. The rest is in the steps. Each step can be done twice.
//
// systemd does what has to outlive the guard and the terminal: the command is a unit, and the timer is one.
//
// With Plan.Via, the pods are on another uplink while the command runs (via.go). The steps MovePods and MoveBack use
// checkpoint/move. After a kill, every interface is on one of the two uplinks. MoveBack then finishes by the journal of
// the move.
package guard
