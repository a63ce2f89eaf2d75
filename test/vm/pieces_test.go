package vm

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGuestArguments(t *testing.T) {
	args := []string{"-test.testlogfile=/tmp/x/testlog.txt", "-test.paniconexit0", "-test.timeout=10m0s", "-test.v=true"}
	want := []string{"-test.paniconexit0", "-test.timeout=10m0s", "-test.v=true"}
	if got := guestArguments(args); !slices.Equal(got, want) {
		t.Errorf("guestArguments = %q, want %q", got, want)
	}
}

func TestGuestEnvironment(t *testing.T) {
	host := []string{
		"PATH=/bin", "PATHOLOGY=x", "RELINK_X=1", "RELINK_VM=1", "RELINK_VM_SHARE=/x", "RELINK_VM_ACCEL=kvm",
		"HOME=/home/me", "GOCOVERDIR=/c", "GODEBUG=a=b",
	}
	want := []string{"PATH=/bin", "RELINK_X=1", "RELINK_VM_ACCEL=kvm", "GOCOVERDIR=/c", "GODEBUG=a=b"}
	if got := guestEnvironment(host); !slices.Equal(got, want) {
		t.Errorf("guestEnvironment = %q, want %q", got, want)
	}
}

func TestWrittenDirectories(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		cover string
		want  []string
	}{
		{"nothing", []string{"-test.v=true", "-test.timeout=1m"}, "", nil},
		{"coverage of go test", []string{"-test.coverprofile=/b/_cover_.out", "-test.gocoverdir=/b/gocoverdir"}, "",
			[]string{"/b", "/b/gocoverdir"}},
		{"relative profile", []string{"-test.cpuprofile=cpu.out"}, "", []string{"/src"}},
		{"profile below outputdir", []string{"-test.outputdir=out", "-test.trace=a/t.out"}, "",
			[]string{"/src/out", "/src/out/a"}},
		{"same directory twice", []string{"-test.cpuprofile=/o/c", "-test.memprofile=/o/m"}, "/o", []string{"/o"}},
		{"GOCOVERDIR", nil, "cover", []string{"/src/cover"}},
	}
	for _, test := range tests {
		if got := writtenDirectories("/src", test.args, test.cover); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestTestLimit(t *testing.T) {
	for value, want := range map[string]time.Duration{"0s": 24 * time.Hour, "2m0s": 2*time.Minute + bootAllowance} {
		if got, err := testLimit(value); err != nil || got != want {
			t.Errorf("testLimit(%q) = %v, %v; want %v", value, got, err, want)
		}
	}
}

func TestArguments(t *testing.T) {
	m := &machine{
		cfg:   Config{Share: "/a,b", Writable: []string{"/w"}, MemoryMiB: 512},
		image: image{kernel: "/k/vmlinux", initramfs: "/k/initramfs"},
		work:  "/tmp/relink-vm-1",
	}
	line := strings.Join(m.arguments(), " ")
	for _, want := range []string{
		"-no-reboot", "-m 512", "-accel tcg,thread=multi", "-kernel /k/vmlinux", "-initrd /k/initramfs",
		"panic=-1", "relink.work=/tmp/relink-vm-1",
		"-netdev hubport,id=wire1,hubid=0 -device e1000e,netdev=wire1,mac=52:54:00:00:00:02",
		"path=/,security_model=none,readonly=on", "mount_tag=share,path=/a,,b,", "mount_tag=writable0,path=/w,",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not on qemu's command line: %s", want, line)
		}
	}
}

func TestAccelerator(t *testing.T) {
	for setting, want := range map[string]string{"": "tcg,thread=multi", "tcg": "tcg,thread=multi", "kvm": "kvm"} {
		if got := accelerator(setting); got != want {
			t.Errorf("accelerator(%q) = %q, want %q", setting, got, want)
		}
	}
}

func TestRunScriptKeepsWords(t *testing.T) {
	script := runScript(Config{
		Command: []string{"printf", "%s|", "$X", "it's", "", "a b\n"},
		Env:     []string{"X='1' \"2\" $3", "Y=a=b"},
		Dir:     "/",
	})
	out, err := exec.Command("sh", "-c", script+"\n").Output()
	if want := "$X|it's||a b\n|"; err != nil || string(out) != want {
		t.Errorf("the script prints %q, %v; want %q", out, err, want)
	}
	if want := `export X=''\''1'\'' "2" $3'`; !strings.Contains(script, want) {
		t.Errorf("the script lacks %q:\n%s", want, script)
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		output string
		code   int
		err    error
		want   string
	}{
		{"--- PASS: TestX/one (0.10s)\nPASS\n", 0, nil, ""},
		{"--- PASS: TestX/one (0.10s)\nPASS\n", 0, ErrPanic, ErrPanic.Error()},
		{"--- PASS: TestX/one (0.10s)\n--- FAIL: TestX (0.10s)\nFAIL\n", 1, nil, "exit status 1"},
		{"testing: warning: no tests to run\nPASS\n", 0, nil, "it did not run"},
		{"--- PASS: TestX/one_more (0.10s)\nPASS\n", 0, nil, "it did not run"},
		{"--- SKIP: TestX/one (0.10s)\nPASS\n", 0, nil, "it did not run"},
	} {
		if err := verdict("TestX/one", test.output, test.code, test.err); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %d, %v: %v, want %q", test.output, test.code, test.err, err, test.want)
		}
	}
}

func TestTrailerReader(t *testing.T) {
	const trailer = "\x1eend:"
	tests := []struct {
		name, stream, text string
		code               int
		reported           bool
	}{
		{"status after text", "one\ntwo\x1eend:7\n", "one\ntwo", 7, true},
		{"no text", "\x1eend:0\n", "", 0, true},
		{"late text is dropped", "one\x1eend:3\nlate\x1eend:4\n", "one", 3, true},
		{"lookalike", "a\x1ee\x1een\x1eend:1\n", "a\x1ee\x1een", 1, true},
		{"no status", "one\x1een", "one\x1een", 0, false},
		{"status cut off", "one\x1eend:1", "one", 0, false},
	}
	for _, test := range tests {
		for size := 1; size <= len(test.stream); size++ {
			var out bytes.Buffer
			calls := 0
			r := &trailerReader{trailer: trailer, out: &out, done: func() { calls++ }}
			for chunk := range slices.Chunk([]byte(test.stream), size) {
				_, _ = r.Write(chunk)
			}
			r.finish()
			code, reported := r.status()
			if out.String() != test.text || code != test.code || reported != test.reported || (calls == 1) != reported {
				t.Errorf("%s, in pieces of %d: %q, %d, %v, %d calls", test.name, size, out.String(), code, reported, calls)
			}
		}
	}
}

func TestConsoleLog(t *testing.T) {
	calls := 0
	c := &consoleLog{onPanic: func() { calls++ }}
	text := strings.Repeat("line\r\n", consoleBytes/4) + "Kernel panic - not syncing: x\r\n---[ end Kernel panic - not syncing\r\n"
	for chunk := range slices.Chunk([]byte(text), 7) {
		_, _ = c.Write(chunk)
	}
	if !c.panicked() || calls != 1 {
		t.Errorf("panicked = %v after %d calls", c.panicked(), calls)
	}
	tail := strings.Split(c.tail(), "\n")
	if len(tail) != consoleLines || tail[len(tail)-1] != "---[ end Kernel panic - not syncing" {
		t.Errorf("the tail is %q", tail)
	}
}

func TestResolveModules(t *testing.T) {
	index := "kernel/a.ko.xz: kernel/b.ko.xz kernel/c.ko.xz\nkernel/b.ko.xz: kernel/c.ko.xz\nkernel/c.ko.xz:\nkernel/d.ko:\n"
	want := []string{"kernel/c.ko.xz", "kernel/b.ko.xz", "kernel/a.ko.xz", "kernel/d.ko"}
	if got := resolveModules(index, []string{"b", "a", "builtin", "d"}); !slices.Equal(got, want) {
		t.Errorf("resolveModules = %q, want %q", got, want)
	}
}

func TestDependedKernel(t *testing.T) {
	tests := []struct{ name, depends, want string }{
		{"linux-image-amd64", "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n", "linux-image-6.1.0-56-amd64"},
		{"linux-image-6.1.0-56-amd64", "linux-image-6.1.0-56-amd64\n  Depends: kmod\n", "linux-image-6.1.0-56-amd64"},
	}
	for _, test := range tests {
		if got := dependedKernel(test.name, test.depends); got != test.want {
			t.Errorf("dependedKernel(%q) = %q, want %q", test.name, got, test.want)
		}
	}
}

func TestBzImagePayload(t *testing.T) {
	data := make([]byte, 2048)
	data[0x1f1] = 1
	copy(data[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(data[0x248:], 16)
	binary.LittleEndian.PutUint32(data[0x24c:], 10)
	copy(data[1024+16:], "packed")
	binary.LittleEndian.PutUint32(data[1024+16+6:], 99)
	payload, size, err := bzImagePayload(data)
	if err != nil || string(payload) != "packed" || size != 99 {
		t.Errorf("bzImagePayload = %q, %d, %v", payload, size, err)
	}
	for name, bad := range map[string][]byte{"empty": nil, "cut off": data[:1030], "other": make([]byte, 2048)} {
		if _, _, err := bzImagePayload(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestArchiveIsReadByCpio(t *testing.T) {
	var archive cpioArchive
	archive.directory("dir")
	archive.file("dir/file", []byte("12345"))
	dir := t.TempDir()
	cmd := exec.Command("busybox", "cpio", "-i", "-d")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(archive.finish())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpacking the archive, `make setup` installs busybox: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "dir/file")); err != nil || string(text) != "12345" {
		t.Errorf("the file reads %q, %v", text, err)
	}
}

func TestCheckStatic(t *testing.T) {
	for path, static := range map[string]bool{"/bin/busybox": true, "/bin/sh": false} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkStatic(data); (err == nil) != static {
			t.Errorf("checkStatic(%s) = %v", path, err)
		}
	}
}

func TestTailTellsWhatThePanicWas(t *testing.T) {
	c := &consoleLog{onPanic: func() {}}
	_, _ = c.Write([]byte("booted\r\n" + panicMark + ": seen\r\n" + strings.Repeat("a call\r\n", 2*consoleLines)))
	if tail := c.tail(); !strings.HasPrefix(tail, panicMark+": seen\n") || strings.Contains(tail, "\r") {
		t.Errorf("it tells %q", tail)
	}
	c = &consoleLog{}
	_, _ = c.Write([]byte("booted\r\n" + strings.Repeat("a line\r\n", 2*consoleLines)))
	if tail := c.tail(); strings.Count(tail, "\n") != consoleLines-1 {
		t.Errorf("without a panic it tells %q", tail)
	}
}
