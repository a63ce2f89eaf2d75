package gc

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/statefile"
)

// Sightings are the things that the last pass saw proven dead.
type Sightings struct {
	// BootID is the boot that FirstSeen counts from.
	BootID string     `json:"bootID"`
	List   []Sighting `json:"seen"`
}

// Sighting is a thing, and when it was seen first. Each pass since then has seen it.
type Sighting struct {
	PassSubject
	// FirstSeen is the time since the boot, in nanoseconds.
	FirstSeen time.Duration `json:"firstSeenNanoseconds"`
}

// SubjectKind tells the sorts of things apart.
type SubjectKind string

const (
	kindHolder      SubjectKind = "holder"
	kindReservation SubjectKind = "reservation"
	kindCheckpoint  SubjectKind = "checkpoint"
)

// PassSubject is what can be freed. If any of its fields differs, it is another thing.
type PassSubject struct {
	Kind SubjectKind `json:"what"`
	// LeaseDir is the directory of the leases, empty for a checkpoint.
	LeaseDir    string               `json:"leaseDir,omitempty"`
	Network     string               `json:"network,omitempty"`
	Address     netip.Addr           `json:"address,omitzero"`
	ContainerID string               `json:"containerID,omitempty"`
	IfName      string               `json:"ifName,omitempty"`
	Namespace   attachment.Namespace `json:"namespace,omitzero"`
	Owner       attachment.Owner     `json:"owner,omitzero"`
	// Milliseconds is when the address was given or released, or when the checkpoint was written, in milliseconds since 1970.
	Milliseconds int64 `json:"atMilliseconds,omitempty"`
	// PresentSandbox is the sandbox of the owner's present pod, if that is what the proof stands on.
	PresentSandbox string `json:"present,omitempty"`
	// ElsewherePodUID is the UID of the owner's pod on another node, if that is what the proof stands on.
	ElsewherePodUID string `json:"elsewhere,omitempty"`
}

// bySubject returns when each thing was seen first. Sightings of another boot, or of a later time, count for nothing.
func (s Sightings) bySubject(moment Moment) map[PassSubject]time.Duration {
	firstSeen := map[PassSubject]time.Duration{}
	if s.BootID != moment.BootID {
		return firstSeen
	}
	for _, sighting := range s.List {
		if sighting.FirstSeen <= moment.Uptime {
			firstSeen[sighting.PassSubject] = sighting.FirstSeen
		}
	}
	return firstSeen
}

// inOtherDirs returns the sightings of leases in directories that were not read. A pass that has not looked says nothing
// about them.
func (s Sightings) inOtherDirs(dirs []string, moment Moment) (kept []Sighting) {
	for _, sighting := range s.List {
		if s.BootID == moment.BootID && sighting.LeaseDir != "" && !slices.Contains(dirs, sighting.LeaseDir) {
			kept = append(kept, sighting)
		}
	}
	return kept
}

// Owners returns the owners of the reservations, each once.
func (s Sightings) Owners() (owners []attachment.Owner) {
	visited := map[attachment.Owner]bool{}
	for _, sighting := range s.List {
		if sighting.Kind == kindReservation && !visited[sighting.Owner] {
			visited[sighting.Owner] = true
			owners = append(owners, sighting.Owner)
		}
	}
	return owners
}

// The file is beside the notes of the agent.
func sightingsFile(s *checkpoint.Store) string { return filepath.Join(s.AgentDir(), "gc.json") }

// loadSightings returns the sightings of the last pass. A file that cannot be read is an error, and the same as none.
func loadSightings(s *checkpoint.Store) (Sightings, error) {
	var loaded Sightings
	if err := statefile.Load(sightingsFile(s), &loaded); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Sightings{}, fmt.Errorf("%w: what earlier passes saw does not count", err)
	}
	return loaded, nil
}

// saveSightings replaces the sightings of the last pass, whole or not at all.
func saveSightings(s *checkpoint.Store, sightings Sightings) error {
	if err := statefile.Save(sightingsFile(s), sightings); err != nil {
		return fmt.Errorf("note what was seen: %w", err)
	}
	return nil
}
