package netfilter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/relink-cni/relink/pkg/printable"
)

// Errors that callers match with errors.Is.
var (
	// ErrNotInstalled: iptables is not installed, or not the variant that is in use. The message says what to install.
	ErrNotInstalled = errors.New("not installed")
	// ErrLocked: another program changes the tables. It may work later.
	ErrLocked = errors.New("locked by another program")
)

// exitBusy is the exit status of iptables if it cannot have the lock, among others.
const exitBusy = 4

// explain returns the error of one run of iptables. It takes no exit status for "is not there": status 1 is that of missing
// modules, too, and the messages are different in each version.
func explain(command string, status int, message string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer: %w", command, context.DeadlineExceeded)
	}
	message = printable.Line(strings.TrimSpace(message))
	// The second is for a program that has another lock file, such as one in a container.
	if status == exitBusy && (strings.Contains(message, "holding the xtables lock") || strings.Contains(message, "Resource temporarily unavailable")) {
		return fmt.Errorf("%s: %w: %s", command, ErrLocked, message)
	}
	if message == "" {
		return fmt.Errorf("%s: %w", command, err)
	}
	return fmt.Errorf("%s: exit status %d: %s", command, status, message)
}
