package vm

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// errReported ends a machine whose command's exit status has arrived.
var errReported = errors.New("exit status reported")

// errPanicSeen ends a machine that has panicked and did not end by itself (the guest may have set kernel.panic=0).
var errPanicSeen = errors.New("panic seen")

// machine is one boot: what it runs, and the files that it needs.
type machine struct {
	cfg     Config
	image   image
	qemu    emulator
	work    string // this boot's own directory on the host
	trailer string // what the guest writes in front of the exit status
}

// newMachine prepares everything that a boot needs. The caller removes the machine.
func newMachine(ctx context.Context, cfg Config) (_ *machine, retErr error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	qemu, err := findEmulator(ctx, cfg.SRIOV)
	if err != nil {
		return nil, err
	}
	img, err := prepareImage(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing the guest's kernel: %w", err)
	}
	work, err := os.MkdirTemp("", "relink-vm-")
	if err != nil {
		return nil, fmt.Errorf("making the machine's directory: %w", err)
	}
	m := &machine{cfg: cfg, image: img, qemu: qemu, work: work, trailer: newTrailer()}
	defer func() {
		if retErr != nil {
			m.remove()
		}
	}()
	if err := m.fill(); err != nil {
		return nil, fmt.Errorf("writing the machine's directory: %w", err)
	}
	return m, nil
}

// fill completes the paths and writes the files that the guest's init reads.
func (m *machine) fill() error {
	// The path travels on the kernel's command line, which knows no quoting.
	if strings.ContainsAny(m.work, " \t\n\"") {
		return fmt.Errorf("%q has white space or quotes in it: set TMPDIR to another directory", m.work)
	}
	if m.cfg.Share == "" {
		m.cfg.Share = filepath.Join(m.work, "share")
		if err := os.Mkdir(m.cfg.Share, 0o755); err != nil {
			return err
		}
	}
	if err := checkDirectories(append([]string{m.cfg.Share}, m.cfg.Writable...)); err != nil {
		return err
	}
	files := map[string]string{
		"machine":  machineScript(m.image.modules, m.trailer),
		"run":      runScript(m.cfg),
		"writable": strings.Join(m.cfg.Writable, "\n") + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(m.work, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newTrailer returns text that no command writes by chance. It begins with a control character because output that ends
// like the trailer begins is held back for a while.
func newTrailer() string {
	return "\x1erelink-vm-exit:" + rand.Text() + ":"
}

func (m *machine) remove() {
	_ = os.RemoveAll(m.work) // nothing depends on it
}

// run boots the machine, once, and returns the command's exit status.
func (m *machine) run(ctx context.Context) (int, error) {
	// The kernel sends Pdeathsig when the thread ends that started the process, so the thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	limited, stop := context.WithTimeoutCause(ctx, m.cfg.TimeLimit, ErrTimeLimit)
	defer stop()
	running, end := context.WithCancelCause(limited)
	defer end(nil)

	output := &trailerReader{trailer: m.trailer, out: m.cfg.Output, done: func() { end(errReported) }}
	console := &consoleLog{onPanic: func() { time.AfterFunc(time.Second, func() { end(errPanicSeen) }) }}
	qemuErr := m.emulate(running, output, console)

	if status, ok := output.status(); ok {
		return status, nil
	}
	return 0, m.failure(ctx, limited, console, qemuErr)
}

// emulate runs qemu until the guest ends or ctx does, and until all that it wrote is read.
func (m *machine) emulate(ctx context.Context, output, console sink) error {
	outputPipe, err := newPipe(output)
	if err != nil {
		return err
	}
	defer outputPipe.finish()
	consolePipe, err := newPipe(console)
	if err != nil {
		return err
	}
	defer consolePipe.finish()

	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, m.qemu.path, append(m.qemu.arguments, m.arguments()...)...)
	cmd.Env = append(os.Environ(), m.qemu.env...)
	cmd.ExtraFiles = []*os.File{outputPipe.write, consolePipe.write} // descriptors 3 and 4, see arguments
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", filepath.Base(m.qemu.path), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// failure explains why no exit status came back.
func (m *machine) failure(ctx, limited context.Context, console *consoleLog, qemuErr error) error {
	var reason error
	switch {
	case console.panicked():
		reason = ErrPanic
	case ctx.Err() != nil:
		reason = fmt.Errorf("the machine was stopped: %w", context.Cause(ctx))
	case limited.Err() != nil:
		reason = fmt.Errorf("%w of %v", ErrTimeLimit, m.cfg.TimeLimit)
	case qemuErr != nil:
		reason = fmt.Errorf("%w: %w", ErrNoResult, qemuErr)
	default:
		reason = ErrNoResult
	}
	if tail := console.tail(); tail != "" {
		return fmt.Errorf("%w; the guest's console ends with:\n%s", reason, tail)
	}
	return reason
}

// checkDirectories returns an error unless each path is absolute, a directory, and can be listed one per line.
func checkDirectories(paths []string) error {
	for _, path := range paths {
		if !filepath.IsAbs(path) || strings.Contains(path, "\n") {
			return fmt.Errorf("sharing %q with the guest: not a plain absolute path", path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("sharing a directory with the guest: %w", err)
		}
		if !info.IsDir() {
			return fmt.Errorf("sharing %s with the guest: not a directory", path)
		}
	}
	return nil
}
