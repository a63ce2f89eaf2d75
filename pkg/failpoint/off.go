//go:build !failpoint

package failpoint

// Here marks a step with a name. In a build without the tag "failpoint" it does nothing, and nothing can
// change that at run time.
func Here(...string) {}

// OlderKernel says whether to work as older kernels need it. Without the tag it is never so.
func OlderKernel() bool { return false }

// AllProcesses says whether to take the processes of this PID namespace for all of the node's. Without the tag it is never
// so.
func AllProcesses() bool { return false }
