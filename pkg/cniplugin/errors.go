package cniplugin

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Error codes beyond those of package types. The specification leaves 100 and
// above to plugins.
const (
	// CodeDiffers is CHECK's: the attachment is not as it should be.
	CodeDiffers uint = 100
)

// ConfigError says that the value of a configuration's key is wrong, and what it
// must be.
func ConfigError(key string, value any, must string) error {
	return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("invalid %q: %v: %s", key, quoted(value), must), "")
}

// EnvError says that the value of an environment variable is wrong, and what it
// must be.
func EnvError(name, value, must string) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("invalid %s: %q: %s", name, value, must), "")
}

// Error returns an error with a code of the specification.
func Error(code uint, format string, args ...any) error {
	return types.NewError(code, fmt.Sprintf(format, args...), "")
}

// Wrap adds what was attempted to err and keeps its code: types.ErrInternal for
// an error that has none. nil stays nil.
func Wrap(err error, attempted string) error {
	if err == nil {
		return nil
	}
	if coded, ok := err.(*types.Error); ok { //nolint:errorlint // An error around it says more than it does.
		return types.NewError(coded.Code, attempted+": "+coded.Msg, coded.Details)
	}
	return types.NewError(codeOf(err), attempted+": "+err.Error(), "")
}

// Join returns one error with the code of the first and the messages of all, or
// nil if there is none.
func Join(errs ...error) error {
	joined := errors.Join(errs...)
	if joined == nil {
		return nil
	}
	return types.NewError(codeOf(joined), joined.Error(), "")
}

func codeOf(err error) uint {
	var coded *types.Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return types.ErrInternal
}

func quoted(value any) any {
	if s, ok := value.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return value
}
