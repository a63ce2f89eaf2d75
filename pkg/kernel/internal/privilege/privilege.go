// Package privilege says of a refusal which privilege is missing.
package privilege

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Explain returns the error with the capability that is missing, if it is EPERM, and the error as
// it is otherwise.
func Explain(err error, capability string) error {
	if errors.Is(err, unix.EPERM) {
		return Missing(err, capability)
	}
	return err
}

// Missing returns the error with the capability for the want of which the kernel refused something.
func Missing(err error, capability string) error {
	return fmt.Errorf("%w: relink must run as root (it needs %s)", err, capability)
}
