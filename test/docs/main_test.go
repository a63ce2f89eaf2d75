package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/vm"
)

// binEnv names the directory of the programs to the guest.
const binEnv = "RELINK_DOCS_BIN"

// TestMain builds the programs that the documents call.
func TestMain(m *testing.M) {
	if !vm.InGuest() {
		bin, err := filepath.Abs(filepath.Join(root, "bin/test"))
		if err == nil {
			err = binaries.Build(bin)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = os.Setenv(binEnv, bin)
	}
	os.Exit(m.Run())
}
