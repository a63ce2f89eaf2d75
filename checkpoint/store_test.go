package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// newStore returns an empty store. Its directory does not exist yet.
func newStore(t *testing.T) *Store {
	t.Helper()
	return OpenStore(filepath.Join(t.TempDir(), "relink", "checkpoints"))
}

// write puts a file into the store, as some other program would.
func write(t *testing.T, s *Store, name, content string) {
	t.Helper()
	path := filepath.Join(s.Dir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files returns the paths in the store, without the lock of each Save. Directories end with a slash.
func files(t *testing.T, s *Store) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(s.Dir(), func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(path, s.Dir()), "/")
		if entry != nil && entry.IsDir() {
			name += "/"
		}
		if name != "/" && name != savesLock.file {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listed returns the result of List in short form.
func listed(t *testing.T, records []Record, unreadable []Unreadable) (read, failed []string) {
	t.Helper()
	for _, r := range records {
		read = append(read, r.Attachment.ContainerID+"/"+r.Attachment.IfName)
	}
	for _, u := range unreadable {
		failed = append(failed, u.ContainerID+"/"+u.IfName)
	}
	return read, failed
}

func expectFiles(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, files(t, s)); diff != "" {
		t.Errorf("files (-want +there):\n%s", diff)
	}
}

func TestOpenStoreTakesConfigurationBeforeEnvironmentBeforeDefault(t *testing.T) {
	t.Setenv(DirEnv, "/from/environment")
	if got := OpenStore("/configured").Dir(); got != "/configured" {
		t.Errorf("configured: %s", got)
	}
	if got := OpenStore("").Dir(); got != "/from/environment" {
		t.Errorf("by the environment: %s", got)
	}
	t.Setenv(DirEnv, "")
	if got := OpenStore("").Dir(); got != "/run/relink/checkpoints" {
		t.Errorf("default: %s", got)
	}
}

func TestLoadGivesBackWhatWasSavedLast(t *testing.T) {
	s := newStore(t)
	first, second := dualStack(), dualStack()
	second.Interface.Link.MTU = 9000
	save(t, s, first, record("c2", "eth0"), second)
	r, err := s.Load(sandboxID, "eth0")
	if diff := cmp.Diff(second, r, sameRecord); err != nil || diff != "" {
		t.Errorf("Load() (-want +got): %v\n%s", err, diff)
	}
	expectFiles(t, s, sandboxID+"/", sandboxID+"/eth0.json", "c2/", "c2/eth0.json")
}

func TestSaveKeepsOthersOut(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	for name, want := range map[string]fs.FileMode{
		"":             fs.ModeDir | 0o700,
		"c1":           fs.ModeDir | 0o700,
		"c1/eth0.json": 0o600,
	} {
		info, err := os.Stat(filepath.Join(s.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%q: mode %s, want %s", name, info.Mode(), want)
		}
	}
}

func TestSaveOfAnInvalidRecordTouchesNothing(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	wrong := record("c1", "eth0")
	wrong.Interface.Parents = nil
	elsewhere := record("../up", "eth0")
	for want, r := range map[string]Record{
		`encode checkpoint: interface: link "eth0": no parents`:      wrong,
		`encode checkpoint: attachment: container ID "../up": must `: elsewhere,
	} {
		if err := s.Save(r); !strings.HasPrefix(message(err), want) {
			t.Errorf("Save() = %v, want %q", err, want)
		}
	}
	if _, err := s.Load("c1", "eth0"); err != nil {
		t.Error(err)
	}
	expectFiles(t, s, "c1/", "c1/eth0.json")
}

func TestLoadOfNone(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	for _, missing := range [][2]string{{"c1", "net1"}, {"c2", "eth0"}} {
		if _, err := s.Load(missing[0], missing[1]); !errors.Is(err, ErrNoCheckpoint) {
			t.Errorf("Load(%s): %v, want ErrNone", missing, err)
		}
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	moved := string(readGolden(t, "v1/vlan-on-nic.json"))
	write(t, s, "c1/torn.json", moved[:100])
	write(t, s, "c1/later.json", `{"version": 8}`)
	write(t, s, "c1/net1.json", moved)
	write(t, s, "c1/net2.json", strings.ReplaceAll(moved, "cnitool-77383ca0a0715733ca6f", "c1"))
	for ifName, test := range map[string]struct {
		is   error
		says string
	}{
		"torn":  {ErrTorn, "/c1/torn.json: torn or no checkpoint: unexpected end of JSON input: relink capture --refresh c1 mends it"},
		"later": {ErrVersion, "/c1/later.json: unknown checkpoint version: 8, this relink reads 1: another relink wrote it"},
		"net1":  {ErrTorn, "/c1/net1.json: torn or no checkpoint: it is that of net1 of cnitool-77383ca0a0715733ca6f on pods: relink capture --refresh c1 mends it"},
		"net2":  {ErrTorn, "/c1/net2.json: torn or no checkpoint: it is that of net1 of c1 on pods: relink capture --refresh c1 mends it"},
	} {
		_, err := s.Load("c1", ifName)
		if !errors.Is(err, test.is) || message(err) != s.Dir()+test.says {
			t.Errorf("Load(%s) = %v, want %s", ifName, err, test.says)
		}
	}
}

func TestListOfAStoreThatIsNotThereIsEmpty(t *testing.T) {
	records, unreadable, err := newStore(t).List()
	if err != nil || records != nil || unreadable != nil {
		t.Errorf("List() = %v, %v, %v", records, unreadable, err)
	}
}

func TestListOfAStoreThatIsAFileFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenStore(path).List(); !strings.HasPrefix(message(err), "list checkpoints: ") {
		t.Errorf("List() = %v, want an error: fail closed", err)
	}
}

func TestListGoesOnBehindWhatItCannotRead(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c2", "net1"), record("c2", "eth0"), record("c1", "eth0"))
	write(t, s, "c0/eth0.json", "")
	write(t, s, "c2/net0.json", `{"version": 1, "att`)
	write(t, s, "c2/net9.json", string(readGolden(t, "v1/vlan-on-nic.json")))
	write(t, s, "c3/eth0.json", `{"version": 8}`)
	write(t, s, "c4/eth0.json/directory", "")
	records, unreadable, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	read, failed := listed(t, records, unreadable)
	if diff := cmp.Diff([]string{"c1/eth0", "c2/eth0", "c2/net1"}, read); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c0/eth0", "c2/net0", "c2/net9", "c3/eth0", "c4/eth0"}, failed); diff != "" {
		t.Errorf("unreadable (-want +got):\n%s", diff)
	}
	for i, want := range []error{ErrTorn, ErrTorn, ErrTorn, ErrVersion} {
		if !errors.Is(unreadable[i].Err, want) {
			t.Errorf("%s: %v, want %v", failed[i], unreadable[i].Err, want)
		}
	}
	if why := message(unreadable[4].Err); !strings.Contains(why, "is a directory") {
		t.Errorf("%s: %s", failed[4], why)
	}
}

func TestListLeavesOutWhatIsNoCheckpoint(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	for _, name := range []string{"c1/.lock", "c1/.eth0.json123456", "c1/.net1.json", "c1/notes.txt", ".parents.lock", ".hidden/eth0.json", "loose.json", "c2/.lock"} {
		write(t, s, name, "{")
	}
	records, unreadable, err := s.List()
	read, failed := listed(t, records, unreadable)
	if diff := cmp.Diff([]string{"c1/eth0"}, read); err != nil || diff != "" || failed != nil {
		t.Errorf("List() = %v, %v, %v", read, failed, err)
	}
}

func TestForgetRemovesTheOneInWhateverState(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"), record("c1", "net1"), record("c2", "eth0"))
	write(t, s, "c1/torn.json", "{")
	for _, forget := range [][2]string{{"c1", "eth0"}, {"c1", "torn"}, {"c1", "eth0"}, {"c9", "eth0"}} {
		if err := s.Forget(forget[0], forget[1]); err != nil {
			t.Errorf("Forget(%s): %v", forget, err)
		}
	}
	expectFiles(t, s, "c1/", "c1/net1.json", "c2/", "c2/eth0.json")
}

func TestForgetThatFailsSaysSo(t *testing.T) {
	s := newStore(t)
	write(t, s, "c1/eth0.json/in-the-way", "")
	if err := s.Forget("c1", "eth0"); !strings.HasPrefix(message(err), "forget checkpoint: ") {
		t.Errorf("Forget() = %v, want an error", err)
	}
}
