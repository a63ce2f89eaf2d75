package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
)

// indexSteps is the file indices.json. When a restore has brought back all that was on some devices of the host, it adds a step with their
// new indices, and writes no checkpoint. Load applies the steps.
type indexSteps struct {
	Steps []indexStep `json:"steps"`
}

// indexStep changes the indices of some checkpoints.
type indexStep struct {
	// Indices are the new indices by the old ones.
	Indices map[int]int `json:"indices"`
	// Files are the files of these checkpoints: when each was written, by its inode. A checkpoint that is saved later has another file.
	Files map[uint64]int64 `json:"files"`
}

// fileID returns what is of this file alone.
func fileID(info fs.FileInfo) (inode uint64, written int64) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	return inode, info.ModTime().UnixNano()
}

// changes says that the step is for the checkpoint in the file of that fileID.
func (x indexStep) changes(inode uint64, written int64) bool {
	recorded, found := x.Files[inode]
	return found && recorded == written
}

// apply brings the indices of the record up to date.
func (x *indexSteps) apply(r *Record) {
	inode, written := fileID(r.file)
	for _, step := range x.Steps {
		if !step.changes(inode, written) {
			continue
		}
		for _, index := range hostIndices(r.Interface) {
			if next, ok := step.Indices[*index]; ok {
				*index = next
			}
		}
	}
	r.steps = x
}

// hostIndices returns where the interface has indices of devices of the host.
func hostIndices(i netstate.Interface) (indices []*int) {
	if i.ParentsInSandbox {
		return nil
	}
	for n := range i.Parents {
		indices = append(indices, &i.Parents[n].IfIndex)
		if bond := i.Parents[n].Bond; bond != nil {
			for m := range bond.Members {
				indices = append(indices, &bond.Members[m].IfIndex)
			}
		}
	}
	return indices
}

// IndicesPath is the path of the file with which RenewIndices changes records.
func (s *Store) IndicesPath() string { return filepath.Join(s.dir, restoringDir, "indices"+suffix) }

// noSteps stands for a file that is not there.
var noSteps = &indexSteps{}

// indexSteps returns what the file has. A file that cannot be read is like none: the records then have old indices. That looks like a
// loss, and a restore changes nothing where nothing is missing.
func (s *Store) indexSteps() *indexSteps {
	info, err := os.Stat(s.IndicesPath())
	if err != nil {
		return noSteps
	}
	s.indices.Lock()
	defer s.indices.Unlock()
	if !isSame(info, s.indices.file) {
		s.indices.file, s.indices.steps = info, &indexSteps{}
		if statefile.Load(s.IndicesPath(), s.indices.steps) != nil {
			s.indices.file = nil // A process may have too many open files for a moment.
			return noSteps
		}
	}
	return s.indices.steps
}

// isSame says that a file is the one that was read. A change always makes a new file. If none was read (nil), it is not.
func isSame(info, read fs.FileInfo) bool {
	return os.SameFile(info, read) && info.ModTime().Equal(read.ModTime())
}

// readIndices is what a store has read of the file.
type readIndices struct {
	sync.Mutex
	file  fs.FileInfo
	steps *indexSteps
}

// Renewal is a record as it was read, and its parents as they are now.
type Renewal struct {
	Record  Record
	Parents []netstate.Device
}

// maxSteps bounds the file, which every Load may have to read. A checkpoint that would need an earlier step has old indices.
const maxSteps = 100

// RenewIndices writes the new indices of the parents of these records into one file. On an error it has not written those of all, and
// the caller saves each record.
func (s *Store) RenewIndices(ctx context.Context, renewals []Renewal) error {
	step := indexStep{Indices: map[int]int{0: 0}, Files: map[uint64]int64{}} // An index that was not known is none that others have.
	var errs []error
	for _, n := range renewals {
		errs = append(errs, s.addRenewal(step, n))
	}
	if len(step.Files) == 0 {
		return errors.Join(errs...)
	}
	err := s.WithNodeLock(ctx, restoringLock, func() error {
		steps := slices.Clone(s.indexSteps().Steps)
		if last := len(steps) - 1; last >= 0 && maps.Equal(steps[last].Files, step.Files) { // As of a NIC that comes and goes.
			step, steps = steps[last].followedBy(step), steps[:last]
		}
		steps = append(steps, step)
		return statefile.Save(s.IndicesPath(), indexSteps{steps[max(0, len(steps)-maxSteps):]})
	})
	return errors.Join(append(errs, err)...)
}

// followedBy returns one step for both, which change the same checkpoints.
func (x indexStep) followedBy(next indexStep) indexStep {
	merged := indexStep{Indices: map[int]int{}, Files: next.Files}
	produced := map[int]bool{}
	for old, index := range x.Indices {
		produced[index] = true
		if renewed, ok := next.Indices[index]; ok {
			index = renewed
		}
		merged.Indices[old] = index
	}
	for old, index := range next.Indices {
		if _, ok := x.Indices[old]; !ok && !produced[old] { // The first did not know it.
			merged.Indices[old] = index
		}
	}
	return merged
}

// addRenewal adds the record to the step, if nobody has saved it since it was read.
func (s *Store) addRenewal(step indexStep, n Renewal) error {
	info, err := os.Stat(s.path(n.Record.Attachment.ContainerID, n.Record.Attachment.IfName))
	if err != nil || !isSame(info, n.Record.file) {
		return fmt.Errorf("%s was saved meanwhile", n.Record.Attachment)
	}
	old, renewed := hostIndices(n.Record.Interface), hostIndices(netstate.Interface{Parents: n.Parents})
	if len(old) == 0 || len(old) != len(renewed) {
		return fmt.Errorf("%s: other parents", n.Record.Attachment)
	}
	for i := range old {
		if other, ok := step.Indices[*old[i]]; ok && other != *renewed[i] {
			return fmt.Errorf("%s: index %d has become %d and %d", n.Record.Attachment, *old[i], *renewed[i], other)
		}
		step.Indices[*old[i]] = *renewed[i]
	}
	inode, written := fileID(info)
	step.Files[inode] = written
	return nil
}
