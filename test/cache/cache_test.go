package cache

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOnceBuildsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thing")
	if err := Once(path, func(string) error { return errors.New("no") }); err == nil || Exists(path) {
		t.Errorf("a failed build: error %v, exists %v", err, Exists(path))
	}
	var builds atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			err := Once(path, func(partial string) error {
				builds.Add(1)
				time.Sleep(20 * time.Millisecond)
				return os.WriteFile(partial, []byte("whole"), 0o644)
			})
			if text, _ := os.ReadFile(path); err != nil || string(text) != "whole" {
				t.Errorf("once: %v, the file reads %q", err, text)
			}
		})
	}
	wait.Wait()
	if builds.Load() != 1 {
		t.Errorf("built %d times", builds.Load())
	}
}
