package e2e

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/relink-cni/relink/test/fresh"
)

// A program takes long to start in the test machine. So one program does the work of many where it can.

// program runs a program in the namespace that the caller is in.
func program(name string, args ...string) error {
	_, err := output(exec.Command(name, args...))
	return err
}

// batch runs each line with ip or tc, in the namespace that the caller is in. It returns the output.
func batch(name string, options, lines []string) (string, error) {
	cmd := exec.Command(name, append(options, "-batch", "-")...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := output(cmd)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, strings.Join(lines, "\n"))
	}
	return out, err
}

// ipBatch runs each line with ip in a pod, or in the host if pod is empty. A failed line does not stop the others.
func ipBatch(pod string, lines ...string) error {
	if len(lines) == 0 {
		return nil
	}
	run := func() error {
		_, err := batch("ip", []string{"-force"}, lines)
		return err
	}
	if pod == "" {
		return run()
	}
	return within(pod, run)
}

func output(cmd *exec.Cmd) (string, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out), nil
}

// within calls f in a pod's network namespace.
func within(pod string, f func() error) error {
	var err error
	if enterErr := fresh.In("/run/netns/"+pod, func() { err = f() }); enterErr != nil {
		return enterErr
	}
	return err
}
