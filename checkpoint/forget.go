package checkpoint

import (
	"errors"
	"os"
)

// ForgetRecord removes the checkpoint that was read as r. The caller holds the sandbox's lock. It
// returns false if the attachment was made anew since r was read, in the same namespace even:
// then the checkpoint stays. One that is gone already counts as forgotten.
func (s *Store) ForgetRecord(r Record) (forgotten bool, err error) {
	current, err := s.Reload(r)
	switch {
	case errors.Is(err, ErrNoCheckpoint):
		return true, nil
	case err != nil:
		return false, err
	case current.Namespace != r.Namespace || !current.CapturedAt.Equal(r.CapturedAt):
		return false, nil
	}
	return true, s.Forget(r.Attachment.ContainerID, r.Attachment.IfName)
}

// ForgetUnreadable is ForgetRecord for a checkpoint that could not be read. It returns false if
// the file was written anew since.
func (s *Store) ForgetUnreadable(u Unreadable) (forgotten bool, err error) {
	info, err := os.Lstat(s.path(u.ContainerID, u.IfName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case u.file != nil && (!os.SameFile(info, u.file) || !info.ModTime().Equal(u.file.ModTime())):
		return false, nil
	}
	return true, s.Forget(u.ContainerID, u.IfName)
}
