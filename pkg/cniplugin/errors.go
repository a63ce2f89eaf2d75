package cniplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/printable"
)

// Error codes that package types does not have. The specification leaves 100 and
// above to plugins.
const (
	// CodeDiffers is the code of a CHECK that finds the attachment not as it should be.
	CodeDiffers uint = 100
)

// RawValue is a value as a configuration has it. A message shows it on one line and adds no quotation marks. Of
// a long value it shows the beginning.
type RawValue []byte

// Missing is the value of a key that is not there.
const Missing missing = "missing"

type missing string

// ConfigError says that the value of a configuration's key is wrong, and what it
// must be. Its code is 7. The value is a string, a number, Written or Missing. must does not repeat the value.
func ConfigError(key string, value any, requirement string) error {
	return Error(types.ErrInvalidNetworkConfig, "invalid %q: %v: %s", clip(key), quoted(value), requirement)
}

// EnvError says that the value of an environment variable is wrong, and what it
// must be. Its code is 4.
func EnvError(name, value, requirement string) error {
	return Error(types.ErrInvalidEnvironmentVariables, "invalid %s: %q: %s", name, clip(value), requirement)
}

// Error returns an error with a code of the specification.
func Error(code uint, format string, args ...any) error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// Wrap puts before err what was attempted. It keeps the code. An error without a code gets
// types.ErrInternal. nil stays nil.
func Wrap(err error, attempted string) error {
	if err == nil {
		return nil
	}
	if coded, ok := err.(*types.Error); ok { //nolint:errorlint // An error around it says more than it does.
		return types.NewError(coded.Code, attempted+": "+coded.Msg, coded.Details)
	}
	return types.NewError(codeOf(err), attempted+": "+err.Error(), "")
}

// Join returns one error with the messages of all, on one line, and the code of the first. It returns nil if there is
// no error.
func Join(errs ...error) error {
	joined := errors.Join(errs...)
	if joined == nil {
		return nil
	}
	return types.NewError(codeOf(joined), printable.Joined(joined), "")
}

// transientErrors are errors that can be over when the next ADD comes: somebody else has used up a shared resource.
var transientErrors = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}

// IsTransient says that a STATUS must not fail because of the error. A runtime would make the node NotReady.
func IsTransient(err error) bool {
	return slices.ContainsFunc(transientErrors, func(p error) bool { return errors.Is(err, p) })
}

func codeOf(err error) uint {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	var temporary interface{ Temporary() bool }
	if errors.As(err, &temporary) && temporary.Temporary() {
		return types.ErrTryAgainLater
	}
	return types.ErrInternal
}

func quoted(value any) any {
	switch v := value.(type) {
	case string:
		return fmt.Sprintf("%q", clip(v))
	case RawValue:
		return clip(strings.Join(strings.Fields(strings.ToValidUTF8(string(v), "?")), " "))
	}
	return value
}

// maxShown is how many bytes of a value a message has at most. The whole message has to fit on one line, with the
// remedy.
const maxShown = 80

func clip(s string) string { return clipTo(s, maxShown) }

// clipTo returns s. If s has more bytes than that, it returns the beginning and three dots.
func clipTo(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}
