package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

// server answers as an API does, and keeps what it was asked. test/cluster has a real one: this one does what that one
// seldom does.
type server struct {
	mu       sync.Mutex
	requests []string
	events   map[string]corev1.Event
	// answer gives another answer than usual, if it returns a status.
	answer func(request string) (status int)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	request := r.Method + " " + name
	s.mu.Lock()
	s.requests = append(s.requests, request)
	answer := s.answer
	s.mu.Unlock()
	if status := answer(request); status != 0 {
		refuse(w, status)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.Method {
	case http.MethodGet:
		fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"uid":"uid-of-%s"}}`, name)
	case http.MethodPost:
		var e corev1.Event
		if err := json.Unmarshal(body, &e); err != nil {
			refuse(w, http.StatusBadRequest)
			return
		}
		s.events[e.Name] = e
		_ = json.NewEncoder(w).Encode(e)
	default:
		e, is := s.events[name]
		if !is {
			refuse(w, http.StatusNotFound)
			return
		}
		if err := json.Unmarshal(body, &e); err != nil {
			refuse(w, http.StatusBadRequest)
			return
		}
		s.events[name] = e
		_ = json.NewEncoder(w).Encode(e)
	}
}

var reasons = map[int]string{http.StatusNotFound: "NotFound", http.StatusConflict: "AlreadyExists", http.StatusForbidden: "Forbidden"}

func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no, because %d","reason":%q,"code":%d}`, status, reasons[status], status)
}

// all returns the requests so far.
func (s *server) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.requests...)
}

// noFault has no other answers.
func noFault(string) int { return 0 }

// clientOf returns a client of the server.
func clientOf(s *httptest.Server) (*Client, error) {
	c, err := objects.New(&rest.Config{Host: s.URL})
	if err != nil {
		return nil, err
	}
	return NewClient(c)
}

// newRecorder returns a Recorder and the server that it writes to. change may be nil.
func newRecorder(t *testing.T, answer func(string) int, change func(*Recorder)) (*Recorder, *server, *bytes.Buffer) {
	t.Helper()
	s := &server{events: map[string]corev1.Event{}, answer: answer}
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	client, err := clientOf(http)
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	r := NewRecorder(client, "relink-agent", "node1", slog.New(slog.NewTextHandler(log, nil)))
	r.firstWait = 10 * time.Millisecond
	if change != nil {
		change(r)
	}
	return r, s, log
}

// runRecorder runs the Recorder until the events have come to an end as wanted.
func runRecorder(t *testing.T, r *Recorder, want map[string]uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		now, same := r.Counts(), true
		for result, n := range now {
			same = same && n == want[result]
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("events came to the ends %v, want %v", now, want)
		}
	}
}

func podOf(name string) attachment.Pod {
	return attachment.Pod{Namespace: "shop", Name: name, UID: "uid-of-" + name}
}
