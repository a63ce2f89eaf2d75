// Package agentsocket serves the socket of an agent to tests.
package agentsocket

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control/serve"
)

// Serve serves a socket until the test ends, and returns its path.
func Serve(t testing.TB, handler http.Handler) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "agent.sock")
	ServeAt(t, path, handler)
	return path
}

// ServeAt is Serve for the socket at the path.
func ServeAt(t testing.TB, path string, handler http.Handler) {
	t.Helper()
	listener, err := serve.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve.Serve(ctx, listener, handler) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
