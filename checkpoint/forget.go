package checkpoint

import (
	"errors"
	"io/fs"
	"os"
)

// ErrWrittenAnew says that the checkpoint is not the one that was read.
var ErrWrittenAnew = errors.New("it was written anew meanwhile")

// ForgetListed removes the checkpoint that was read as r, or that could not be read if u is set. The caller holds the
// sandbox's lock. It returns ErrWrittenAnew if the attachment was made anew since, in the same namespace even: then the
// checkpoint stays. One that is gone already counts as forgotten.
func (s *Store) ForgetListed(r Record, u *Unreadable) error {
	key, file := r.Attachment, r.file
	if u != nil {
		key, file = u.Attachment(), u.file
	}
	info, err := os.Stat(s.path(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && file != nil && !isSame(info, file) {
		return ErrWrittenAnew
	}
	return s.Forget(key.ContainerID, key.IfName)
}
