// Command demo shows relink's main job in the test machine: it attaches pods, reloads a real driver, and restores the pods.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/vm"
)

func main() {
	picture := flag.String("svg", "", "also draw what the terminal shows to this `file`")
	flag.Parse()
	code, err := demo(*picture)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	os.Exit(code)
}

// demo runs in the module's root. It draws the terminal to the file picture, if one is named and all went well.
func demo(picture string) (int, error) {
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
	var shown bytes.Buffer
	code, err := vm.Run(ctx, vm.Config{
		Command: []string{"bash", filepath.Join(root, "test/demo/demo.sh")},
		Dir:     root,
		Env:     []string{"BIN=" + bin},
		Output:  io.MultiWriter(os.Stdout, &shown),
	})
	if err != nil || code != 0 || picture == "" {
		return code, err
	}
	return 0, os.WriteFile(picture, []byte(terminal(shown.String())), 0o644)
}
