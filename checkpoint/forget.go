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
	key, same := r.Attachment, false
	if u != nil {
		key = u.Attachment()
		info, err := os.Lstat(s.path(key.ContainerID, key.IfName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		same = err != nil || u.file == nil || isSame(info, u.file)
	} else {
		current, err := s.Reload(r)
		if err != nil && !errors.Is(err, ErrNoCheckpoint) {
			return err
		}
		same = err != nil || current.Namespace == r.Namespace && current.CapturedAt.Equal(r.CapturedAt)
	}
	if !same {
		return ErrWrittenAnew
	}
	return s.Forget(key.ContainerID, key.IfName)
}
