package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

var (
	// ErrNoAgent means that no agent listens on the socket.
	ErrNoAgent = errors.New("no relink-agent runs on this node")
	// ErrNoAnswer means that an agent runs, but did not answer in time.
	ErrNoAnswer = errors.New("relink-agent does not answer")
	// ErrRefused means that the agent refused the request. The error has the reason.
	ErrRefused = errors.New("relink-agent refused")
)

// Patience is how long a client waits for an answer by default.
const Patience = 5 * time.Second

// maxAnswer bounds an answer: 5,000 attachments that all drifted take 2 MB.
const maxAnswer = 16 << 20

// Client talks to the agent of this node. The zero value is ready for use.
type Client struct {
	// Path is the path of the socket. Empty means the result of Socket.
	Path string
	// Patience is the limit for a request. Zero means the constant Patience.
	Patience time.Duration
}

// Status asks the agent for its state. errors.Is matches ErrNoAgent, ErrNoAnswer and ErrRefused. Other errors are from
// the connection.
func (c Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.request(ctx, "GET", StatusPath, nil, &s)
	return s, err
}

// Pause makes the agent restore nothing for that length of time. Length 0 means until a resume. When Pause returns, no
// restore of the agent is under way. Its errors are those of Status. After ErrNoAnswer, the agent may be paused.
func (c Client) Pause(ctx context.Context, length time.Duration, reason string) (Pause, error) {
	req := PauseRequest{Reason: reason}
	if length > 0 {
		req.Length = length.String()
	}
	var p Pause
	err := c.request(ctx, "POST", PausePath, req, &p)
	return p, err
}

// Resume ends a pause. It is no error if the agent is not paused. Its errors are those of Status.
func (c Client) Resume(ctx context.Context) error {
	return c.request(ctx, "POST", ResumePath, nil, nil)
}

// request sends a request and stores the answer in into. body and into may be nil.
func (c Client) request(ctx context.Context, method, path string, body, response any) error {
	patience, socket := cmp.Or(c.Patience, Patience), cmp.Or(c.Path, Socket())
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := exchange(bounded, socket, method, path, body, response)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil: // The caller's time is shorter than the patience.
		return fmt.Errorf("%w in time: look at its log, or restart it (%s)", ErrNoAnswer, socket)
	// A socket with a full queue gives EAGAIN at once: the agent accepts no connections.
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w within %s: look at its log, or restart it (%s)", ErrNoAnswer, patience, socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nothing listens on %s", ErrNoAgent, socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: only root may talk to relink-agent: %w", socket, err)
	case errors.Is(err, ErrRefused):
		return err
	}
	return fmt.Errorf("relink-agent at %s: %w", socket, err)
}

// exchange makes a connection for one request and its answer.
func exchange(ctx context.Context, socket, method, path string, body, response any) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://relink"+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // Either the answer is complete, or there already is an error.
	content, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("read its answer: %w", err)
	case len(content) > maxAnswer:
		return fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	case answer.StatusCode/100 != 2:
		return newRefusedError(answer.StatusCode, content)
	case response == nil:
		return nil
	}
	if err := json.Unmarshal(content, response); err != nil {
		return fmt.Errorf("its answer is no %T in JSON: %w", response, err)
	}
	return nil
}

// refusedError is ErrRefused with the status and what the agent says.
type refusedError struct {
	status  int
	message string
}

func (e *refusedError) Error() string { return ErrRefused.Error() + ": " + e.message }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }

// newRefusedError returns the error for an answer with a failure status.
func newRefusedError(status int, body []byte) error {
	var answer Refusal
	if json.Unmarshal(body, &answer) != nil || answer.Error == "" {
		return &refusedError{status, fmt.Sprintf("HTTP status %d", status)}
	}
	return &refusedError{status, answer.Error}
}
