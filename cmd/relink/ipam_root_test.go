package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
)

// A normal user learns that only root may look.
func TestIPAMSaysThatItNeedsRoot(t *testing.T) {
	const nobody = 65534
	top := t.TempDir()
	relink, leases := filepath.Join(top, "relink"), filepath.Join(top, "leases")
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(relink, binary, 0o755), os.Mkdir(leases, 0o700), os.Chmod(top, 0o755), os.Chmod(filepath.Dir(top), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(relink, "ipam", "list", "--data-dir", leases)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != cli.Usage {
		t.Errorf("exit status %d, %v", code, err)
	}
	if want := "open " + leases + ": permission denied: run relink ipam as root\n"; !strings.HasSuffix(string(said), want) {
		t.Errorf("it says %q, want %q at the end", said, want)
	}
}
