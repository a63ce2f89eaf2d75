//go:build !failpoint

package failpoint

// Here marks a step, named by the words. In a build without the tag "failpoint" it is
// empty, and nothing that is said to the program changes that.
func Here(...string) {}

// OlderKernel says whether to take the ways that older kernels need. Without the tag:
// never.
func OlderKernel() bool { return false }
