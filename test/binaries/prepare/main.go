// Command prepare builds the programs that the tests run, into bin of the current directory.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/relink-cni/relink/test/binaries"
)

func main() {
	if err := errors.Join(binaries.Build("bin/test"), binaries.Build("bin/test-failpoint", "failpoint")); err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		os.Exit(1)
	}
}
