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

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
)

// indexSteps is the file indices.json. When a restore has brought back all that was on some devices of the host, it adds a step with their
// new indices by the old ones, and writes no checkpoint. Load applies to a record the steps that were added after it was saved.
type indexSteps struct {
	// Dropped is the number of the first steps, which no record needs any more.
	Dropped int           `json:"dropped"`
	Steps   []map[int]int `json:"steps"`
}

func (x indexSteps) count() int { return x.Dropped + len(x.Steps) }

// apply brings the indices of the record up to date.
func (x indexSteps) apply(r *Record) {
	r.savedSteps = r.IndexSteps
	later := x.since(r.IndexSteps)
	for _, index := range HostIndices(r.Interface) {
		*index = indexAfter(*index, later)
	}
	r.IndexSteps = x.count()
}

// since returns the steps after the first n.
func (x indexSteps) since(n int) []map[int]int {
	first := n - x.Dropped
	if first < 0 || first > len(x.Steps) { // The file is another one than at that time.
		first = 0
	}
	return x.Steps[first:]
}

// indexAfter returns what has become of an index by the steps.
func indexAfter(index int, steps []map[int]int) int {
	for _, step := range steps {
		if next, ok := step[index]; ok {
			index = next
		}
	}
	return index
}

// HostIndices returns where the interface has indices of devices of the host.
func HostIndices(i netstate.Interface) (indices []*int) {
	parents := HostParents(i)
	for n := range parents {
		indices = append(indices, &parents[n].IfIndex)
		if bond := parents[n].Bond; bond != nil {
			for m := range bond.Members {
				indices = append(indices, &bond.Members[m].IfIndex)
			}
		}
	}
	return indices
}

// IndicesPath is the path of the file with which RenewIndices changes all records.
func (s *Store) IndicesPath() string { return filepath.Join(s.dir, restoringDir, "indices"+suffix) }

// indexSteps returns what the file has. A file that cannot be read is like none: the records then have old indices. That looks like a
// loss, and a restore changes nothing where nothing is missing.
func (s *Store) indexSteps() indexSteps {
	info, err := os.Stat(s.IndicesPath())
	if err != nil {
		return indexSteps{}
	}
	s.indices.Lock()
	defer s.indices.Unlock()
	if !isSame(info, s.indices.file) {
		s.indices.file, s.indices.steps = info, indexSteps{}
		if statefile.Load(s.IndicesPath(), &s.indices.steps) != nil {
			s.indices.file = nil // A process may have too many open files for a moment.
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
	steps indexSteps
}

// Renewal is a record as it was read, and its parents as they are now.
type Renewal struct {
	Record  Record
	Parents []netstate.Device
}

// maxSteps bounds the file, which every Load may have to read. Checkpoints that are saved need no steps.
const maxSteps = 1000

// RenewIndices writes the new indices of the parents of all these records into one file. On an error it has written nothing, and the
// caller saves each record.
func (s *Store) RenewIndices(ctx context.Context, renewals []Renewal) error {
	step, read := map[int]int{0: 0}, map[string]Record{} // An index that was not known is none that others have.
	for _, n := range renewals {
		old, renewed := HostIndices(n.Record.Interface), HostIndices(netstate.Interface{Parents: n.Parents})
		if len(old) == 0 || len(old) != len(renewed) {
			return fmt.Errorf("%s: other parents", n.Record.Attachment)
		}
		for i := range old {
			if other, ok := step[*old[i]]; ok && other != *renewed[i] {
				return fmt.Errorf("%s: index %d has become %d and %d", n.Record.Attachment, *old[i], *renewed[i], other)
			}
			step[*old[i]] = *renewed[i]
		}
		read[s.path(n.Record.Attachment)] = n.Record
	}
	maps.DeleteFunc(step, func(old, renewed int) bool { return old == renewed })
	unlock, err := s.LockNode(ctx, restoringLock)
	if err != nil {
		return err
	}
	defer unlock()
	unlockSaves, err := s.LockNode(ctx, savesLock)
	if err != nil {
		return err
	}
	defer unlockSaves()
	steps := s.indexSteps()
	needless, err := s.checkKept(step, steps, read)
	if err != nil {
		records, unreadable, err := s.list(read)
		if err != nil || len(unreadable) > 0 {
			return fmt.Errorf("%d checkpoints cannot be read: %w", len(unreadable), err)
		}
		if needless, err = s.checkStep(step, steps, nil, records, read); err != nil {
			return err
		}
	}
	steps = indexSteps{Dropped: needless, Steps: append(slices.Clone(steps.Steps[needless-steps.Dropped:]), step)}
	if err := statefile.Save(s.IndicesPath(), steps); err != nil {
		return fmt.Errorf("save the parents' indices: %w", err)
	}
	return nil
}

// checkStep returns the number of the first steps that no record needs. It returns an error if the new step would change another record than
// those that were read. The records were listed before the later steps.
func (s *Store) checkStep(step map[int]int, steps indexSteps, later []map[int]int, records []Record, read map[string]Record) (needless int, err error) {
	needless = steps.count()
	for _, r := range records {
		needless = min(needless, max(r.savedSteps, steps.Dropped))
		if r.savedSteps > steps.count() {
			return 0, fmt.Errorf("%s has steps of a file that was lost", r.Attachment)
		}
		n := read[s.path(r.Attachment)]
		unchanged := isSame(r.file, n.file) && netstate.SameIndices(r.Interface.Parents, n.Interface.Parents)
		for _, listed := range HostIndices(r.Interface) {
			index := indexAfter(*listed, later)
			if _, ok := step[index]; ok && (!unchanged || index != *listed) {
				return 0, fmt.Errorf("%s has index %d, too", r.Attachment, index)
			}
		}
	}
	if steps.count()-needless >= maxSteps {
		return 0, errors.New("too many steps")
	}
	return needless, nil
}

// listing is what List has read of a store without unreadable checkpoints, and what had been written before.
type listing struct {
	lock    fs.FileInfo
	steps   int
	records []Record
}

// beginListing returns an empty listing. It returns nil if a checkpoint is saved now: nobody knows whether List reads what was there
// before. Each save makes the lock's file longer.
func (s *Store) beginListing() *listing {
	f, err := os.OpenFile(s.nodeFile(savesLock), os.O_RDONLY|statefile.OpenFlags, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if flock.Try(f, flock.Exclusive) != nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	return &listing{lock: info, steps: s.indexSteps().count()}
}

// checkKept is checkStep for what List has read, if nobody has saved anything since then: the file of the lock is as long as it was. Its
// times differ if it is that of another directory. The caller keeps saves away, and on an error it lists anew: a checkpoint that was
// forgotten since then counts here.
func (s *Store) checkKept(step map[int]int, steps indexSteps, read map[string]Record) (needless int, err error) {
	l := s.listed.Load()
	info, err := os.Stat(s.nodeFile(savesLock))
	if l == nil || err != nil || !isSame(info, l.lock) || l.lock.Size() != info.Size() || l.steps < steps.Dropped || l.steps > steps.count() {
		return 0, errors.New("saved since the list was made")
	}
	return s.checkStep(step, steps, steps.since(l.steps), l.records, read)
}
