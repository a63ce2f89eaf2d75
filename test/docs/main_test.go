package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
)

// bin has the programs that the documents call.
var bin string

func TestMain(m *testing.M) {
	dir, err := filepath.Abs(filepath.Join(root, "bin/test"))
	bin = dir
	if err == nil {
		err = binaries.Build(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
