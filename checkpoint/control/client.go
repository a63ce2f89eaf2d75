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
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/sandbox"
)

var (
	// ErrNoAgent means that no agent listens on the socket.
	ErrNoAgent = owner.ErrNoAsker
	// ErrNoAnswer means that an agent runs, but did not answer in time.
	ErrNoAnswer = errors.New("relink-agent does not answer")
)

// Meanings are the errors that the statuses of a refusal stand for. Any other status means that the same request may succeed later.
var Meanings = map[int]error{
	404: errors.New("this relink-agent is too old"),
	409: owner.ErrDiffers,
	410: sandbox.ErrNoRuntime,
	422: owner.ErrInvalid,
	424: pool.ErrUnknown,
}

// Refusal is the answer to a refused request. It is the error of one whose status has no meaning.
type Refusal struct {
	Status int    `json:"-"`
	Reason string `json:"error"`
}

func (r Refusal) Error() string { return "relink-agent refused: " + r.Reason }

// as is the refusal as an error with this meaning, whose words the agent may have written already.
func (r Refusal) as(meaning error) error {
	return fmt.Errorf("%w: %s", meaning, strings.TrimPrefix(r.Reason, meaning.Error()+": "))
}

// Patience is how long a client waits for an answer by default, unless the request takes the agent longer.
const Patience = 5 * time.Second

// patience is how long a client waits for requests that make the agent ask others.
var patience = map[string]time.Duration{
	OwnersPath:     40 * time.Second, // It asks the API about each of MaxOwners.
	SandboxesPath:  15 * time.Second,
	RefillPath:     pool.AgentLimit + time.Second,
	AcquirePath:    pool.AgentLimit + time.Second,
	PoolClaimPath:  pool.AgentLimit + time.Second,
	PoolImportPath: pool.ImportLimit + 5*time.Second,
}

// maxAnswer bounds an answer: 5,000 attachments that all drifted take 2 MB.
const maxAnswer = 16 << 20

// Client talks to the agent of this node. The zero value is ready for use.
type Client struct {
	// Path is the path of the socket. Empty means the result of Socket.
	Path string
	// Patience is the limit for a request. Zero means as long as the agent may take.
	Patience time.Duration
}

// Status asks the agent for its state. errors.Is matches ErrNoAgent and ErrNoAnswer, errors.As a Refusal. Other errors are from the
// connection.
func (c Client) Status(ctx context.Context) (s Status, err error) {
	err = c.request(ctx, StatusPath, nil, &s)
	return s, err
}

// Pause makes the agent restore nothing for that length of time. Length 0 means until a resume. When Pause returns, no
// restore of the agent is under way. Its errors are those of Status. After ErrNoAnswer, the agent may be paused.
func (c Client) Pause(ctx context.Context, length time.Duration, reason string) (p Pause, err error) {
	req := PauseRequest{Reason: reason}
	if length > 0 {
		req.Length = length.String()
	}
	err = c.request(ctx, PausePath, req, &p)
	return p, err
}

// Resume ends a pause. It is no error if the agent is not paused. Its errors are those of Status.
func (c Client) Resume(ctx context.Context) error {
	return c.request(ctx, ResumePath, PauseRequest{}, nil)
}

// request sends a body, if it is not nil, and stores the answer in response, unless that is nil.
func (c Client) request(ctx context.Context, path string, body, response any) error {
	limit, socket := cmp.Or(c.Patience, patience[path], Patience), cmp.Or(c.Path, Socket())
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	status, answer, err := exchange(bounded, socket, path, body)
	if err != nil {
		return explain(ctx, err, socket, limit)
	}
	if status < 200 || status > 299 {
		return refused(status, answer)
	}
	if response == nil {
		return nil
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("relink-agent at %s: its answer is no %T in JSON: %w", socket, response, err)
	}
	return nil
}

// explain says why no answer came. ctx is the caller's.
func explain(ctx context.Context, err error, socket string, limit time.Duration) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil: // The caller's time is shorter than the patience.
		return fmt.Errorf("%w in time: look at its log, or restart it (%s)", ErrNoAnswer, socket)
	// A socket with a full queue gives EAGAIN at once: the agent accepts no connections.
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w within %s: look at its log, or restart it (%s)", ErrNoAnswer, limit, socket)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nothing listens on %s", ErrNoAgent, socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: only root may talk to relink-agent: %w", socket, err)
	}
	return fmt.Errorf("relink-agent at %s: %w", socket, err)
}

// exchange makes a connection for one request of HTTP/1.0 and its answer. A server sends no chunks to such a client, and ends the
// connection after the answer (RFC 9112, section 6.1).
func exchange(ctx context.Context, socket, path string, body any) (status int, answer []byte, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = conn.Close() }() // Either the answer is complete, or there already is an error.
	// A deadline in the past ends reading and writing at once.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	method, content := "GET", []byte(nil)
	if body != nil {
		method = "POST"
		if content, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	// An agent that refuses may answer before it has read the whole request.
	_, writeErr := fmt.Fprintf(conn, "%s %s HTTP/1.0\r\nHost: relink\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(content), content)
	b, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("read its answer: %w", errors.Join(err, writeErr))
	}
	if len(b) > maxAnswer {
		return 0, nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	// The end of what is cut off is missing in its JSON, too.
	header, answer, complete := bytes.Cut(b, []byte("\r\n\r\n"))
	if n, _ := fmt.Sscanf(string(header), "HTTP/1.%d %d", new(int), &status); n < 2 || !complete {
		return 0, nil, fmt.Errorf("its answer begins with %.40q: this is not HTTP, or only a part of it", b)
	}
	return status, answer, nil
}

// refused returns the error for an answer with a failure status.
func refused(status int, answer []byte) error {
	refusal := Refusal{Reason: fmt.Sprintf("HTTP status %d", status)}
	_ = json.Unmarshal(answer, &refusal) // Another body than the agent's has no reason.
	if meaning := Meanings[status]; meaning != nil {
		return refusal.as(meaning)
	}
	return refusal
}

// unavailable gives an error of a request the meaning that others have for it, unless it has one of the meanings for good: the same request
// may succeed later.
func unavailable(meaning, err error, final ...error) error {
	if err == nil || slices.ContainsFunc(final, func(f error) bool { return errors.Is(err, f) }) {
		return err
	}
	var refusal Refusal
	if errors.As(err, &refusal) {
		return refusal.as(meaning)
	}
	return fmt.Errorf("%w: %w", meaning, err)
}
