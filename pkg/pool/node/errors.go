package node

import (
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/pool"
)

// unavailable makes an error match pool.ErrUnavailable, if it does not say already what it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, pool.ErrUnavailable) || errors.Is(err, pool.ErrUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", pool.ErrUnavailable, err)
}

// ignore drops the error if it is one of these.
func ignore(err error, ignored ...error) error {
	for _, e := range ignored {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// maxTries bounds how often an object is read again that somebody else changes at the same time.
const maxTries = 8

// retry makes a step again that has met somebody else's change of the object.
func retry(object string, step func() error) error {
	for range maxTries {
		if err := step(); err == nil || ignore(err, pool.ErrConflict, pool.ErrExists, pool.ErrNotFound) != nil {
			return err
		}
	}
	return errors.New(object + " changes all the time") // It matches none of package pool: nobody tries again at once.
}
