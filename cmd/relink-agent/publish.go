package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/net/netutil"

	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/wait"
)

const (
	// listenRetry is the time between two tries to listen on an address. The address may come later: when the agent
	// starts, the node's network may not be up yet.
	listenRetry = 5 * time.Second
	// maxClients is how many clients of an address are served at the same time. Further clients wait.
	maxClients = 16
)

// servePages serves the pages on the address until ctx ends. The agent can restore without the address. So if the address
// is missing, servePages logs that and tries again.
func servePages(ctx context.Context, address string, pages map[string]http.Handler, log *slog.Logger) {
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.Handle(path, page)
	}
	logged := false
	for ctx.Err() == nil {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			log.Info("metrics are served", "address", listener.Addr().String())
			err = serve.Serve(ctx, netutil.LimitListener(listener, maxClients), mux)
		}
		if err != nil && ctx.Err() == nil && !logged {
			log.Error("metrics are not served: the agent tries again every "+listenRetry.String(), "address", address, "error", err)
			logged = true
		}
		wait.Sleep(ctx, listenRetry)
	}
}

// isListenAddress says that the text is IP:PORT or :PORT. A name would need a name server, and the node may have no network.
func isListenAddress(s string) bool {
	if port, ok := strings.CutPrefix(s, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	}
	a, err := netip.ParseAddrPort(s)
	return err == nil && a.Port() > 0
}

// newPages are the pages for probes and for Prometheus.
func newPages(healthy, ready func() error, exporter http.Handler) map[string]http.Handler {
	return map[string]http.Handler{"GET /healthz": healthHandler(healthy), "GET /readyz": healthHandler(ready), "GET /metrics": exporter}
}

// newReadiness returns what the agent calls once it is ready, and a check that fails until then. systemd starts then what is ordered after the
// agent.
func newReadiness() (call func(), check func() error) {
	ready := make(chan struct{})
	return func() { close(ready); notifySystemd(daemon.SdNotifyReady) }, func() error {
		select {
		case <-ready:
			return nil
		default:
			return errors.New("the first look is not over")
		}
	}
}

// healthHandler answers with ok, or with the error of the check.
func healthHandler(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}
