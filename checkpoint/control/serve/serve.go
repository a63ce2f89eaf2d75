package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
)

// Agent is what the control socket shows and controls. Several goroutines call it at once.
type Agent interface {
	// Status returns the present state of the agent. It does not wait for work that is under way.
	Status() control.Status
	// Pause makes the agent restore nothing for that length of time. Length 0 means until Resume. A new pause replaces
	// an earlier one. Pause returns when no restore is under way any more, or with the error of ctx. The agent is
	// paused in both cases.
	Pause(ctx context.Context, length time.Duration, reason string) (control.Pause, error)
	// Resume ends a pause. It does nothing if there is none.
	Resume(ctx context.Context) error
}

// maxBody is how many bytes of a request are read at most: control.MaxOwners with the longest names. maxPause is that for a pause, whose reason
// people read.
const (
	maxBody  = 256 << 10
	maxPause = 4096
)

// maxUnread is how many bytes are read of a request that was refused.
const maxUnread = 16 << 20

// Handler returns the handler of the control socket. handlers has the handlers of further paths, such as /metrics.
func Handler(agent Agent, s Sources, handlers map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, handler := range handlers {
		mux.Handle(path, handler)
	}
	for pattern, handler := range map[string]http.HandlerFunc{
		"GET " + control.StatusPath: answer(func(*http.Request) (any, error) { return agent.Status(), nil }),
		"POST " + control.PausePath: answer(func(r *http.Request) (any, error) {
			length, reason, err := readPause(http.MaxBytesReader(nil, r.Body, maxPause))
			if err != nil {
				return nil, badRequest(err)
			}
			return agent.Pause(r.Context(), length, reason)
		}),
		"POST " + control.ResumePath:     answer(func(r *http.Request) (any, error) { return nil, agent.Resume(r.Context()) }),
		"POST " + control.OwnerPath:      post(s.Owners, errNoAPI, Owners.Ask),
		"POST " + control.ClaimPath:      post(s.Owners, errNoAPI, noContent(Owners.Fulfil)),
		"POST " + control.OwnersPath:     post(s.Owners, errNoAPI, judge),
		"GET " + control.SandboxesPath:   get(s.Runtime, errNoRuntime, listSandboxes),
		"POST " + control.RefillPath:     post(s.Pools, errNoAPI, noContent(Pools.Refill)),
		"POST " + control.AcquirePath:    post(s.Pools, errNoAPI, Pools.Acquire),
		"POST " + control.PoolClaimPath:  post(s.Pools, errNoAPI, noContent(Pools.Claim)),
		"POST " + control.PoolImportPath: post(s.Pools, errNoAPI, Pools.Import),
	} {
		mux.HandleFunc(pattern, handler)
	}
	return drainBody(mux)
}

// answer returns a handler that writes the response, nothing for nil, or a refusal.
func answer(respond func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch response, err := respond(r); {
		case err != nil:
			refusal := refusalOf(err)
			writeJSON(w, refusal.Status, refusal)
		case response == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, response)
		}
	}
}

// get returns a handler that asks the source. missing is the answer if the source is nil.
func get[Source, Response any](source Source, missing error, ask func(Source, context.Context) (Response, error)) http.HandlerFunc {
	return answer(func(r *http.Request) (any, error) {
		if any(source) == nil {
			return nil, missing
		}
		return ask(source, r.Context())
	})
}

// post is get with a request in JSON.
func post[Source, Request, Response any](source Source, missing error, ask func(Source, context.Context, Request) (Response, error)) http.HandlerFunc {
	return answer(func(r *http.Request) (any, error) {
		if any(source) == nil {
			return nil, missing
		}
		var request Request
		if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody)).Decode(&request); err != nil {
			return nil, badRequest(fmt.Errorf("the body must be a %T in JSON: %w", request, err))
		}
		return ask(source, r.Context(), request)
	})
}

// noContent is for a request whose success has no response.
func noContent[Source, Request any](perform func(Source, context.Context, Request) error) func(Source, context.Context, Request) (any, error) {
	return func(source Source, ctx context.Context, request Request) (any, error) {
		return nil, perform(source, ctx, request)
	}
}

func badRequest(err error) error {
	return control.Refusal{Status: http.StatusBadRequest, Reason: err.Error()}
}

// refusalOf gives an error the status of which control.Client makes the same error again.
func refusalOf(err error) control.Refusal {
	var refusal control.Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	refusal = control.Refusal{Status: http.StatusServiceUnavailable, Reason: err.Error()}
	for status, meaning := range control.Meanings {
		if errors.Is(err, meaning) {
			refusal.Status = status
		}
	}
	return refusal
}

// drainBody reads what a handler has left of the body. The kernel resets a connection that ends with unread bytes
// (unix_release_sock), and the client would read that instead of the answer.
func drainBody(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body // A handler may put a limit around it.
		handler.ServeHTTP(w, r)
		_, _ = io.Copy(io.Discard, io.LimitReader(body, maxUnread)) // readLimit bounds the time.
	})
}

// readPause reads a control.PauseRequest. An empty body means an empty request.
func readPause(body io.Reader) (length time.Duration, reason string, err error) {
	var req control.PauseRequest
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil && !errors.Is(err, io.EOF) {
		return 0, "", fmt.Errorf(`the body must be JSON such as {"for": "10m", "why": "new driver"}: %w`, err)
	}
	if req.Length == "" {
		return 0, req.Reason, nil
	}
	if length, err = time.ParseDuration(req.Length); err != nil || length <= 0 {
		return 0, "", fmt.Errorf(`invalid "for" %q: must be a time of more than 0, such as 90s or 10m; leave it out for a pause until you resume`, req.Length)
	}
	return length, req.Reason, nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		status, content = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(content, '\n')) // A client that is gone needs no answer.
}

// Limits of a request. A slower client loses its connection.
const (
	readLimit = 2 * time.Second
	// writeLimit includes the wait of a pause for restores that are under way, and that for the Kubernetes API: it is
	// asked about many owners for 30 s.
	writeLimit = 40 * time.Second
	maxHeader  = 8 << 10
)

// Serve answers on the listener until ctx is done, and then closes it. Requests that are under way then have one second
// to end. Serve returns nil after the end of ctx.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readLimit, ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: readLimit,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		_ = listener.Close()
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(last) != nil {
		_ = server.Close() // Otherwise a client that does not read would keep its connection.
	}
	return nil
}
