package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestIsAddress(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9477": true, "[::1]:9477": true, ":9477": true, "0.0.0.0:1": true,
		"": false, "9477": false, ":": false, ":0": false, ":65536": false, "127.0.0.1": false, "127.0.0.1:": false, "localhost:9477": false, "::1:9477x": false, ":-1": false,
	} {
		if isListenAddress(address) != want {
			t.Errorf("%q: %v", address, !want)
		}
	}
	if _, err := parse([]string{"--metrics-listen", "9477"}); err == nil || !strings.Contains(err.Error(), `invalid --metrics-listen "9477": must be IP:PORT such as 127.0.0.1:9477`) {
		t.Error(err)
	}
	if opts, err := parse([]string{"--metrics-listen", ":9477"}); err != nil || opts.metricsListen != ":9477" {
		t.Errorf("%+v, %v", opts, err)
	}
}

// The address has these pages and no others.
func TestPublish(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	var log bytes.Buffer
	health := errors.New("the loop hangs")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		servePages(ctx, address, map[string]http.Handler{"GET /healthz": healthHandler(func() error { return health })}, slog.New(slog.NewTextHandler(&log, nil)))
		close(ended)
	}()
	for path, want := range map[string]string{"/healthz": "503 the loop hangs", "/v1/status": "404 404 page not found", "/v1/pause": "404 404 page not found"} {
		if got := get(t, "http://"+address+path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	stop()
	<-ended
	if !strings.Contains(log.String(), "metrics are served") || strings.Contains(log.String(), "ERROR") {
		t.Errorf("log: %s", log.String())
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil && time.Since(begun) < 30*time.Second {
			continue // Nothing listens on the address yet.
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status[:3] + " " + strings.TrimSpace(string(body))
	}
}

// endingLog calls end when something is logged.
type endingLog struct {
	bytes.Buffer
	end func()
}

func (l *endingLog) Write(p []byte) (int, error) {
	defer l.end()
	return l.Buffer.Write(p)
}

// The agent does not end if the node lacks the address: a restore may bring it back.
func TestPublishWithoutTheAddress(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	log := endingLog{end: stop}
	servePages(ctx, "192.0.2.1:9477", nil, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "metrics are not served: the agent tries again every 5s") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log: %s", log.String())
	}
}
