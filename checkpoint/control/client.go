package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
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

// request sends a request and stores the answer in response. body and response may be nil.
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
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // Either the answer is complete, or there already is an error.
	// A deadline in the past ends reading and writing at once.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	request, err := encodeRequest(method, path, body)
	if err != nil {
		return err
	}
	// An agent that refuses may answer before it has read the whole request.
	_, writeErr := conn.Write(request)
	status, answer, err := readAnswer(conn)
	if err != nil {
		return errors.Join(err, writeErr)
	}
	if status < 200 || status > 299 {
		return newRefusedError(status, answer)
	}
	if response == nil {
		return nil
	}
	if err := json.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("its answer is no %T in JSON: %w", response, err)
	}
	return nil
}

// encodeRequest returns the request as HTTP/1.0: after the answer, the connection ends.
func encodeRequest(method, path string, body any) ([]byte, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.0\r\nHost: relink\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, len(content))
	b.Write(content)
	return b.Bytes(), nil
}

// readAnswer reads an answer to a request of HTTP/1.0. A server sends no chunks to such a client (RFC 9112, section
// 6.1). Without a length, the body goes on to the end of the connection.
func readAnswer(conn io.Reader) (status int, body []byte, err error) {
	limited := &io.LimitedReader{R: conn, N: maxAnswer + 1}
	r := textproto.NewReader(bufio.NewReader(limited))
	line, err := r.ReadLine()
	if err != nil {
		return 0, nil, fmt.Errorf("read its answer: %w", err)
	}
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	if status, err = strconv.Atoi(code); err != nil || !strings.HasPrefix(version, "HTTP/1.") {
		return 0, nil, fmt.Errorf("its answer begins with %q: this is not HTTP", line)
	}
	header, err := r.ReadMIMEHeader()
	if err != nil {
		return 0, nil, fmt.Errorf("read its answer: %w", err)
	}
	if body, err = io.ReadAll(r.R); err != nil {
		return 0, nil, fmt.Errorf("read its answer: %w", err)
	}
	if limited.N <= 0 {
		return 0, nil, fmt.Errorf("its answer is longer than %d bytes", maxAnswer)
	}
	if length := header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
		return 0, nil, fmt.Errorf("its answer is cut off: %d of %s bytes came", len(body), length)
	}
	return status, body, nil
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
	_ = json.Unmarshal(body, &answer) // Another body than the agent's has no reason.
	return &refusedError{status, cmp.Or(answer.Error, fmt.Sprintf("HTTP status %d", status))}
}
