package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed guest/serve.sh
var serve string

// Session is a machine that runs one command after the other. Its methods are for one goroutine at a time.
type Session struct {
	share string // where commands and their results pass
	count int    // of the commands so far
	stop  context.CancelFunc
	ended chan struct{} // closed when the machine has ended
	err   error         // why it has, once that is so
}

// Open boots a machine for many commands: Config.Command, Config.Dir and Config.Share are not for the caller to set, and
// Config.Output gets nothing but what goes wrong. It does not wait for the boot. The caller closes the session.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if len(cfg.Command) > 0 || cfg.Dir != "" || cfg.Share != "" {
		return nil, errors.New("a session has no command, directory or share of its own")
	}
	share, err := os.MkdirTemp("", "relink-vm-share-")
	if err != nil {
		return nil, fmt.Errorf("making the session's directory: %w", err)
	}
	cfg.Command, cfg.Share = []string{"sh", "-c", serve}, share
	ctx, stop := context.WithCancel(ctx)
	s := &Session{share: share, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		if _, s.err = Run(ctx, cfg); s.err == nil {
			s.err = ErrNoResult
		}
	}()
	return s, nil
}

// Close ends the machine. Nothing is left of it when Close returns.
func (s *Session) Close() {
	s.stop()
	<-s.ended
	_ = os.RemoveAll(s.share) // nothing depends on it
}

// Run runs the command, of which it heeds Command, Env and Dir, and returns what it writes and its exit status. After an
// error, which says that the machine failed or ctx ended, the session is of no more use.
func (s *Session) Run(ctx context.Context, command Config) (output string, exitCode int, err error) {
	command, err = command.withDefaults()
	if err != nil {
		return "", 0, err
	}
	s.count++
	if err := s.put("job", runScript(command)); err != nil {
		return "", 0, err
	}
	exitCode, err = s.await(ctx)
	b, _ := os.ReadFile(s.path("out")) // A machine that failed may not have got that far.
	return string(b), exitCode, err
}

func (s *Session) path(kind string) string {
	return filepath.Join(s.share, strconv.Itoa(s.count)+"."+kind)
}

// put writes a file of the present command so that the guest sees it whole.
func (s *Session) put(kind, text string) error {
	partial := filepath.Join(s.share, "partial")
	err := os.WriteFile(partial, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(partial, s.path(kind))
	}
	if err != nil {
		return fmt.Errorf("giving the machine a command: %w", err)
	}
	return nil
}

// await returns the exit status of the present command when it comes.
func (s *Session) await(ctx context.Context) (int, error) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-s.ended:
			return 0, s.err
		case <-look.C:
		}
		b, _ := os.ReadFile(s.path("end")) // It comes with the end of the command.
		if digits, complete := strings.CutSuffix(string(b), "\n"); complete {
			return strconv.Atoi(digits)
		}
	}
}
