package checkpoint

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
)

// onDevices returns a record of an interface on a VLAN on a bond with two members, which have these indices.
func onDevices(containerID string, vlan, bond, first, second int) Record {
	r := record(containerID, "eth0")
	r.Interface.Parents = devicesWith(vlan, bond, first, second)
	return r
}

func devicesWith(vlan, bond, first, second int) []netstate.Device {
	return []netstate.Device{
		{Kind: "vlan", Name: "bond4.3", MAC: "02:00:00:00:00:04", MTU: 1500, IfIndex: vlan, VLAN: &netstate.VLAN{ID: 3, Protocol: "802.1q"}},
		{Kind: "bond", Name: "bond4", MAC: "02:00:00:00:00:04", MTU: 1500, IfIndex: bond, Bond: &netstate.Bond{
			Mode: "active-backup", Members: []netstate.Member{{Name: "eth0", IfIndex: first}, {Name: "eth1", IfIndex: second}},
		}},
	}
}

// indicesIn returns the indices of the host's devices in a checkpoint, as a new process reads it.
func indicesIn(t *testing.T, s *Store, containerID string) (indices []int) {
	t.Helper()
	r, err := OpenStore(s.Dir()).Load(containerID, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range HostIndices(r.Interface) {
		indices = append(indices, *index)
	}
	return indices
}

func expectIndices(t *testing.T, s *Store, containerID string, want ...int) {
	t.Helper()
	if got := indicesIn(t, s, containerID); !slices.Equal(got, want) {
		t.Errorf("%s has the indices %v, not %v", containerID, got, want)
	}
}

// renew is RenewIndices for these sandboxes, as they are read now.
func renew(t *testing.T, s *Store, parents []netstate.Device, containerIDs ...string) error {
	t.Helper()
	var renewals []Renewal
	for _, id := range containerIDs {
		r, err := s.Load(id, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		renewals = append(renewals, Renewal{Record: r, Parents: parents})
	}
	return s.RenewIndices(t.Context(), renewals)
}

func TestRenewIndices(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 10, 4, 2, 3))
	before, err := os.ReadFile(s.path(attachment.Key{ContainerID: "c1", IfName: "eth0"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := renew(t, s, devicesWith(30, 24, 22, 23), "c1", "c2"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(s.path(attachment.Key{ContainerID: "c1", IfName: "eth0"})); err != nil || string(after) != string(before) {
		t.Errorf("the checkpoint itself was written: %v", err)
	}
	expectIndices(t, s, "c1", 30, 24, 22, 23)

	// A device with an old index is another device to a checkpoint that is saved later.
	save(t, s, onDevices("c3", 10, 24, 22, 23))
	expectIndices(t, s, "c3", 10, 24, 22, 23)
	// Only some of the devices are new, others of the checkpoint that is not whole are the same, and a step is done after the other.
	if err := renew(t, s, devicesWith(31, 24, 22, 23), "c1", "c2"); err != nil {
		t.Fatal(err)
	}
	expectIndices(t, s, "c2", 31, 24, 22, 23)
	expectIndices(t, s, "c3", 10, 24, 22, 23)

	// What was read before is read again.
	r, err := s.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	two := []Renewal{{Record: r, Parents: devicesWith(41, 24, 22, 23)}, {Record: r, Parents: devicesWith(42, 24, 22, 23)}}
	if err := s.RenewIndices(t.Context(), two); err == nil {
		t.Error("one index has two new ones")
	}
	if err := renew(t, s, devicesWith(41, 24, 22, 23), "c1", "c2"); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Reload(r); err != nil || r.Interface.Parents[0].IfIndex != 41 {
		t.Errorf("Reload() has the index %d: %v", r.Interface.Parents[0].IfIndex, err)
	}
}

// Steps that no checkpoint needs do not stay.
func TestStepsAreDropped(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	for n := range 5 {
		if err := renew(t, s, devicesWith(11+n, 4, 2, 3), "c1"); err != nil {
			t.Fatal(err)
		}
	}
	save(t, s, onDevices("c1", 15, 4, 2, 3))
	if err := renew(t, s, devicesWith(20, 4, 2, 3), "c1"); err != nil {
		t.Fatal(err)
	}
	if steps := s.indexSteps(); steps.Dropped != 5 || len(steps.Steps) != 1 {
		t.Errorf("the steps are %+v", steps)
	}
	expectIndices(t, s, "c1", 20, 4, 2, 3)
}

func TestRenewIndicesRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, s *Store)
		want    string
	}{
		"another checkpoint has an old index": {func(t *testing.T, s *Store) { save(t, s, onDevices("c2", 10, 4, 2, 3)) }, "has index 10, too"},
		"another has a member's old index":    {func(t *testing.T, s *Store) { save(t, s, onDevices("c2", 11, 5, 3, 6)) }, "has index 3, too"},
		"another cannot be read":              {func(t *testing.T, s *Store) { write(t, s, "c2/eth0.json", "{") }, "1 checkpoints cannot be read"},
		"it was saved since it was read":      {func(t *testing.T, s *Store) { save(t, s, onDevices("c1", 10, 4, 2, 3)) }, "has index 10, too"},
		"it had no index":                     {nil, "index 0 has become"},
		"it has other parents":                {nil, "other parents"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			r := onDevices("c1", 10, 4, 2, 3)
			parents := devicesWith(30, 24, 22, 23)
			switch name {
			case "it had no index":
				r = onDevices("c1", 10, 4, 0, 3)
			case "it has other parents":
				parents = parents[:1]
			}
			save(t, s, r)
			r, err := s.Load("c1", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if name != "another cannot be read" {
				list(t, s)
			}
			if test.prepare != nil {
				test.prepare(t, s)
			}
			if err := s.RenewIndices(t.Context(), []Renewal{{Record: r, Parents: parents}}); !strings.Contains(message(err), test.want) {
				t.Errorf("RenewIndices() = %v, not %q", err, test.want)
			}
			if _, err := os.Stat(s.IndicesPath()); !os.IsNotExist(err) {
				t.Errorf("it has written the file: %v", err)
			}
		})
	}
}

func list(t *testing.T, s *Store) []Record {
	t.Helper()
	records, unreadable, err := s.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(err, unreadable)
	}
	return records
}

// Nothing is read again if nobody has saved anything since the list was made. Somebody may have been about to, and ends after it.
func TestRenewIndicesReadsWhatWasSavedSinceTheList(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 11, 4, 5, 6))
	renewals := []Renewal{{Record: list(t, s)[0], Parents: devicesWith(30, 4, 2, 3)}}
	write(t, s, "c2/eth0.json", "{")
	if err := s.RenewIndices(t.Context(), renewals); err != nil {
		t.Errorf("it has read c2: %v", err)
	}
	save(t, s, onDevices("c2", 11, 4, 5, 6))

	saving, err := s.lockNodeFile(t.Context(), savesLock, unix.LOCK_SH)
	if err != nil {
		t.Fatal(err)
	}
	renewals = []Renewal{{Record: list(t, s)[0], Parents: devicesWith(31, 4, 2, 3)}}
	r := onDevices("c2", 30, 4, 5, 6)
	r.IndexSteps = 1
	encoded, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "c2/eth0.json", string(encoded))
	if err := saving.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewIndices(t.Context(), renewals); !strings.Contains(message(err), "has index 30, too") {
		t.Errorf("it has not read c2: %v", err)
	}
}

// The list was made before a chain of the same restore added a step, and before a DEL.
func TestRenewIndicesGoesByTheStepsSinceTheList(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 11, 5, 6, 7))
	save(t, s, onDevices("c3", 13, 5, 6, 7))
	save(t, s, onDevices("c4", 13, 5, 6, 7))
	records := list(t, s)
	if err := s.RenewIndices(t.Context(), []Renewal{{Record: records[0], Parents: devicesWith(11, 4, 2, 3)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewIndices(t.Context(), []Renewal{{Record: records[1], Parents: devicesWith(12, 5, 6, 7)}}); !strings.Contains(message(err), "c1 on") {
		t.Errorf("c1 has the index 11 by the step before: %v", err)
	}
	if err := s.Forget("c3", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewIndices(t.Context(), []Renewal{{Record: records[3], Parents: devicesWith(14, 5, 6, 7)}}); err != nil {
		t.Errorf("c3 has index 13 no longer: %v", err)
	}
	expectIndices(t, s, "c1", 11, 4, 2, 3)
	expectIndices(t, s, "c2", 11, 5, 6, 7)
	expectIndices(t, s, "c4", 14, 5, 6, 7)
}

// Without the file the checkpoints have their old indices, which is a loss to a restore. It finds all as recorded and writes the file anew.
func TestTheFileOfIndicesIsLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"deleted": os.Remove,
		"torn":    func(path string) error { return os.WriteFile(path, []byte(`{"dropped`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			save(t, s, onDevices("c1", 10, 4, 2, 3))
			for n := range 3 {
				if err := renew(t, s, devicesWith(11+n, 4, 2, 3), "c1"); err != nil {
					t.Fatal(err)
				}
			}
			save(t, s, onDevices("c2", 13, 4, 2, 3))
			if err := lose(s.IndicesPath()); err != nil {
				t.Fatal(err)
			}
			expectIndices(t, s, "c1", 10, 4, 2, 3)
			expectIndices(t, s, "c2", 13, 4, 2, 3)
			if err := renew(t, s, devicesWith(13, 4, 2, 3), "c1"); !strings.Contains(message(err), "c2") {
				t.Errorf("the new file has steps that c2 would not get: %v", err)
			}
			save(t, s, onDevices("c2", 13, 4, 2, 3))
			if err := renew(t, s, devicesWith(13, 4, 2, 3), "c1"); err != nil {
				t.Fatal(err)
			}
			expectIndices(t, s, "c1", 13, 4, 2, 3)
			expectIndices(t, s, "c2", 13, 4, 2, 3)
		})
	}
}

// Two chains of one restore have read their records before either writes its indices.
func TestRenewIndicesOfTwoChains(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 15, 9, 7, 8))
	records := list(t, s)
	for i, parents := range [][]netstate.Device{devicesWith(30, 24, 22, 23), devicesWith(35, 29, 27, 28)} {
		if err := s.RenewIndices(t.Context(), []Renewal{{Record: records[i], Parents: parents}}); err != nil {
			t.Error(err)
		}
	}
	expectIndices(t, s, "c1", 30, 24, 22, 23)
	expectIndices(t, s, "c2", 35, 29, 27, 28)
}

// While a NIC comes and goes, a checkpoint that needs all steps does not make the file grow without end.
func TestStepsAreLimited(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	if err := statefile.Save(s.IndicesPath(), indexSteps{Steps: make([]map[int]int, maxSteps)}); err != nil {
		t.Fatal(err)
	}
	if err := renew(t, s, devicesWith(30, 24, 22, 23), "c1"); message(err) != "too many steps" {
		t.Error(err)
	}
	save(t, s, onDevices("c1", 30, 24, 22, 23))
	if err := renew(t, s, devicesWith(40, 24, 22, 23), "c1"); err != nil || len(s.indexSteps().Steps) != 1 {
		t.Error(len(s.indexSteps().Steps), err)
	}
}

// A process that cannot open the file for a moment reads it later.
func TestIndicesThatCannotBeReadForAMoment(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	if err := renew(t, s, devicesWith(30, 24, 22, 23), "c1"); err != nil {
		t.Fatal(err)
	}
	s = OpenStore(s.Dir())
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	unread := s.indexSteps().count()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if read := s.indexSteps().count(); unread != 0 || read != 1 {
		t.Errorf("it has %d steps, and later %d", unread, read)
	}
}
