package checkpoint

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
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
	for _, index := range hostIndices(r.Interface) {
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
	before, err := os.ReadFile(s.path("c1", "eth0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := renew(t, s, devicesWith(30, 24, 22, 23), "c1", "c2"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(s.path("c1", "eth0")); err != nil || string(after) != string(before) {
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

func TestRenewIndicesRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"it was saved since it was read": "was saved meanwhile",
		"it was forgotten":               "was saved meanwhile",
		"it had no index":                "index 0 has become",
		"it has other parents":           "other parents",
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
			switch name {
			case "it was saved since it was read":
				save(t, s, onDevices("c1", 10, 4, 2, 3))
			case "it was forgotten":
				if err := s.Forget("c1", "eth0"); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.RenewIndices(t.Context(), []Renewal{{Record: r, Parents: parents}}); !strings.Contains(message(err), want) {
				t.Errorf("RenewIndices() = %v, not %q", err, want)
			}
			if r, err := s.Load("c1", "eth0"); err == nil && r.Interface.Parents[0].IfIndex != 10 {
				t.Errorf("it has changed the checkpoint: %+v", r.Interface.Parents)
			}
		})
	}
}

// Others have the old indices, too: they are not whole, or cannot be read. They keep their indices.
func TestRenewIndicesChangesNoOther(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"c1", "c2", "c3"} {
		save(t, s, onDevices(id, 10, 4, 2, 3))
	}
	write(t, s, "c4/eth0.json", "{")
	if err := renew(t, s, devicesWith(30, 24, 22, 23), "c1", "c3"); err != nil {
		t.Fatal(err)
	}
	expectIndices(t, s, "c1", 30, 24, 22, 23)
	expectIndices(t, s, "c2", 10, 4, 2, 3)
	expectIndices(t, s, "c3", 30, 24, 22, 23)
	// What was saved since has the indices that it was saved with.
	save(t, s, onDevices("c3", 10, 4, 2, 3))
	expectIndices(t, s, "c3", 10, 4, 2, 3)
}

// Without the file the checkpoints have their old indices, which is a loss to a restore. It finds all as recorded and writes the file anew.
func TestTheFileOfIndicesIsLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"deleted": os.Remove,
		"torn":    func(path string) error { return os.WriteFile(path, []byte(`{"steps`), 0o600) },
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
	records, _, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for i, parents := range [][]netstate.Device{devicesWith(30, 24, 22, 23), devicesWith(35, 29, 27, 28)} {
		if err := s.RenewIndices(t.Context(), []Renewal{{Record: records[i], Parents: parents}}); err != nil {
			t.Error(err)
		}
	}
	expectIndices(t, s, "c1", 30, 24, 22, 23)
	expectIndices(t, s, "c2", 35, 29, 27, 28)
}

// A NIC comes and goes, and each time the same checkpoints get other indices, some of which others had before: that is one step.
func TestStepsOfTheSameCheckpointsAreOne(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 12, 4, 2, 3))
	for _, parents := range [][]netstate.Device{devicesWith(30, 24, 22, 23), devicesWith(10, 30, 2, 22), devicesWith(40, 4, 10, 2)} {
		if err := renew(t, s, parents, "c1"); err != nil {
			t.Fatal(err)
		}
	}
	if steps := s.indexSteps().Steps; len(steps) != 1 {
		t.Errorf("%d steps", len(steps))
	}
	expectIndices(t, s, "c1", 40, 4, 10, 2)
	expectIndices(t, s, "c2", 12, 4, 2, 3)
}

// The file does not grow without end. A checkpoint without its first step has old indices, until it is written anew.
func TestStepsAreLimited(t *testing.T) {
	s := newStore(t)
	save(t, s, onDevices("c1", 10, 4, 2, 3))
	save(t, s, onDevices("c2", 10, 4, 2, 3))
	for n := range maxSteps + 1 {
		id := "c1"
		if n%2 > 0 {
			id = "c2"
		}
		if err := renew(t, s, devicesWith(11+n, 4, 2, 3), id); err != nil {
			t.Fatal(err)
		}
	}
	if steps := s.indexSteps().Steps; len(steps) != maxSteps {
		t.Errorf("%d steps", len(steps))
	}
	expectIndices(t, s, "c1", 10, 4, 2, 3)
	if err := renew(t, s, devicesWith(500, 4, 2, 3), "c1"); err != nil {
		t.Fatal(err)
	}
	expectIndices(t, s, "c1", 500, 4, 2, 3)
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
	unread := len(s.indexSteps().Steps)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if read := len(s.indexSteps().Steps); unread != 0 || read != 1 {
		t.Errorf("it has %d steps, and later %d", unread, read)
	}
}
