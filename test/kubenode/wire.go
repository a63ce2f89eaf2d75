package kubenode

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// Get asks a pod's HTTP server, from the wire's other end, for the pod's name. It makes a new connection.
func Get(address string, limit time.Duration) (name string, err error) {
	enterErr := fresh.In("/run/netns/wire", func() { name, err = get(address, limit) })
	if enterErr != nil {
		return "", enterErr
	}
	return name, err
}

// get does without an http.Client: that makes its connections elsewhere than in the namespace of its caller.
func get(address string, limit time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, "80"), limit)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // All was read.
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "GET /name HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s: %w", address, answer.Status, err)
	}
	return strings.TrimSpace(string(text)), nil
}
