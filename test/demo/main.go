// Command demo shows relink's main job in the test machine: pods attached, a real driver reload, one restore.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/vm"
)

func main() {
	code, err := demo()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	os.Exit(code)
}

// demo is run in the module's root.
func demo() (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	root, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	fmt.Println("Building the programs and booting a machine with a real kernel and real NICs ...")
	bin := filepath.Join(root, "bin", "test")
	if err := binaries.Build(bin); err != nil {
		return 0, err
	}
	return vm.Run(ctx, vm.Config{
		Command: []string{"bash", filepath.Join(root, "test/demo/demo.sh")},
		Dir:     root,
		Env:     []string{"BIN=" + bin},
	})
}
