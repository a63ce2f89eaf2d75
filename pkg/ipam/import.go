package ipam

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ImportState is what became of a file of host-local.
type ImportState string

// The states. Of a dry run, ToImport stands for ImportDone.
const (
	ImportDone ImportState = "imported"
	ToImport   ImportState = "to import"
	// ImportPresent says that the address is leased as the file has it.
	ImportPresent ImportState = "already there"
	// ImportTorn says that nobody can tell whose the address is: it is held back.
	ImportTorn ImportState = "torn"
	// ImportConflict says that the address is another's by its lease, which is kept.
	ImportConflict ImportState = "conflict"
	// ImportIgnored says that the file is nothing of host-local's.
	ImportIgnored ImportState = "ignored"
)

// ImportedFile is what is reported of one file.
type ImportedFile struct {
	// File is its name.
	File string `json:"file"`
	// Address is the zero Addr for a file that is ignored.
	Address netip.Addr `json:"address,omitzero"`
	// Attachment is whose the address is by the file.
	Attachment attachment.Key `json:"attachment,omitzero"`
	State      ImportState    `json:"state"`
	// Why is for people; empty where the state says all.
	Why string `json:"why,omitempty"`
}

// ImportedLast is where the search for a free address goes on.
type ImportedLast struct {
	Set     int        `json:"set"`
	Address netip.Addr `json:"address"`
}

// ImportReport is the whole of what an import found and did.
type ImportReport struct {
	Network string         `json:"network"`
	Dir     string         `json:"dir"`
	DryRun  bool           `json:"dryRun"`
	Files   []ImportedFile `json:"files"`
	// Last are the range sets whose next address comes after that of host-local.
	Last []ImportedLast `json:"last"`
}

// Well says that every file is leased as it says.
func (r ImportReport) Well() bool {
	return !slices.ContainsFunc(r.Files, func(f ImportedFile) bool {
		return f.State == ImportTorn || f.State == ImportConflict || f.State == ImportIgnored
	})
}

// errDryRun undoes what a dry run did.
var errDryRun = errors.New("dry run")

// Import takes over the addresses that host-local has given of the network, from its
// directory: all at once or none. A lease that is there is kept as it is, so that it can
// be run again. An address whose file is torn is reserved for nobody until it is
// released by hand: a pod may have it. The directory stays as it is; host-local is kept
// out of it meanwhile. The error is that nothing was taken over. ErrBusy: host-local or
// others had the directory or the store for as long as the caller waited.
func (s *Store) Import(ctx context.Context, dir string, dryRun bool) (ImportReport, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ImportReport{}, err
	}
	unlock, err := lockHostLocal(ctx, dir, s.wait)
	if err != nil {
		return ImportReport{}, err
	}
	defer unlock()
	d, err := readHostLocal(ctx, dir)
	if err != nil {
		return ImportReport{}, err
	}
	bootID, err := s.boot()
	if err != nil {
		return ImportReport{}, err
	}
	im := importer{store: s, dir: dir, dryRun: dryRun, bootID: bootID}
	var done importing
	change := func(l *leases) (err error) {
		if err := l.settle(); err != nil {
			return err
		}
		if done, err = im.decide(d, l, l.now); err != nil {
			return err
		}
		if dryRun {
			return errDryRun
		}
		return l.take(done)
	}
	if dryRun {
		err = s.change(ctx, change)
	} else {
		err = s.update(ctx, change)
	}
	switch {
	case dryRun && errors.Is(err, ErrNone): // There is no store yet, and so no lease.
		done, err = im.decide(d, noLeases{}, s.now())
	case errors.Is(err, errDryRun):
		err = nil
	}
	return im.report(done, d.unknown), err
}

// importing is what an import does.
type importing struct {
	files []ImportedFile
	// leases are those that are new, in the order of their addresses.
	leases []Lease
	last   []ImportedLast
}

// take makes the leases of the import those of their addresses.
func (l *leases) take(i importing) error {
	if err := l.indexInOrder(i.leases); err != nil {
		return err
	}
	for _, lease := range i.leases {
		if err := l.put(lease); err != nil {
			return err
		}
	}
	for _, last := range i.last {
		if err := l.setLastGiven(last.Set, last.Address); err != nil {
			return err
		}
	}
	return nil
}

// indexInOrder puts the leases in the index of attachments, where put will only find
// them. Until a transaction ends bbolt has what it adds in one slice in order: of 60,000
// container IDs that come in another order, each would move half of the rest.
func (l *leases) indexInOrder(all []Lease) error {
	var keys [][]byte
	for _, lease := range all {
		if k := heldKey(lease); k != nil {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		if err := l.byAttachment.Put(k, nil); err != nil {
			return err
		}
	}
	return nil
}

// importer decides about the files of a directory.
type importer struct {
	store  *Store
	dir    string
	dryRun bool
	bootID string
}

func (im importer) report(i importing, unknown []ImportedFile) ImportReport {
	return ImportReport{
		Network: im.store.network, Dir: im.dir, DryRun: im.dryRun,
		Files: append(append([]ImportedFile{}, i.files...), unknown...),
		Last:  append([]ImportedLast{}, i.last...),
	}
}

// known is what there is before an import.
type known interface {
	get(netip.Addr) (Lease, bool, error)
	over(Lease) bool
	lastGiven(set int) netip.Addr
}

// noLeases are those of a network of which nothing was ever given.
type noLeases struct{}

func (noLeases) get(netip.Addr) (Lease, bool, error) { return Lease{}, false, nil }
func (noLeases) over(Lease) bool                     { return false }
func (noLeases) lastGiven(int) netip.Addr            { return netip.Addr{} }

// decide says what is to be done about each file.
func (im importer) decide(d hostLocalDir, known known, now time.Time) (importing, error) {
	var i importing
	for _, f := range d.given {
		was, leased, err := known.get(f.address)
		if err != nil {
			return i, err
		}
		if leased && known.over(was) {
			was = Lease{}
		}
		file, lease := im.file(f, was, now)
		i.files = append(i.files, file)
		if lease.State != "" {
			i.leases = append(i.leases, lease)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(d.last)) {
		// Where relink has given since, its own is right.
		if !known.lastGiven(set).IsValid() {
			i.last = append(i.last, ImportedLast{set, d.last[set]})
		}
	}
	return i, nil
}

// file says what becomes of a file, and which lease its address gets, the zero Lease
// for none. was is the lease that it has, the zero Lease for free.
func (im importer) file(f hostLocalFile, was Lease, now time.Time) (ImportedFile, Lease) {
	file := ImportedFile{File: f.address.String(), Address: f.address}
	if f.torn != "" {
		return im.torn(f, file, was, now)
	}
	file.Attachment = attachment.Key{Network: im.store.network, ContainerID: f.containerID, IfName: f.ifName}
	switch {
	case was.HeldBy(file.Attachment):
		file.State = ImportPresent
		return file, Lease{}
	case was.State != "" && was.Attachment == file.Attachment:
		// host-local was not told, so that the file is out of date.
		file.State, file.Why = ImportPresent, "given up since, and "+was.Whose()
		return file, Lease{}
	case was.State != "" && !was.nobodys():
		file.State, file.Why = ImportConflict, was.Whose()
		return file, Lease{}
	}
	file.State = ImportDone
	if im.dryRun {
		file.State = ToImport
	}
	// It counts as held in this boot, whatever the file's time: the clock may have been
	// wrong when it was written.
	return file, Lease{
		Address: f.address, Attachment: file.Attachment, State: Held, Origin: Imported,
		Policy: Policy{Quarantine: DefaultQuarantine}, BootID: im.bootID,
		AcquiredAt: f.written.UTC().Truncate(time.Millisecond),
	}
}

// torn keeps the address of a torn file from being given.
func (im importer) torn(f hostLocalFile, file ImportedFile, was Lease, now time.Time) (ImportedFile, Lease) {
	file.State = ImportTorn
	switch {
	case was.State == Reserved && was.nobodys():
		file.Why = f.torn + ": held back already"
		return file, Lease{}
	case was.State != "" && was.State != Quarantined:
		file.Why = f.torn + ", and its address is " + was.Whose()
		return file, Lease{}
	}
	file.Why = f.torn + ": held back, as a pod may have the address"
	return file, Lease{
		Address: f.address, Attachment: attachment.Key{Network: im.store.network}, State: Reserved,
		Why:        fmt.Sprintf("a pod may have it by host-local's %s, which is torn: %s", filepath.Join(im.dir, file.File), f.torn),
		ReleasedAt: now,
	}
}
