// Package control is the control socket of relink-agent: its place, what goes over it, and a client.
//
// The socket is a unix socket that only root may use. It speaks HTTP and JSON, so that
// curl --unix-socket works:
//
//	GET  /v1/status   a Status
//	POST /v1/pause    a PauseRequest; the answer is a Pause
//	POST /v1/resume   no content either way
//	GET  /healthz, /readyz, /metrics
//
// A refusal has a Refusal for its body. The client writes and reads HTTP by hand: net/http would make
// the command relink larger by half. Package serve, below this one, is the other end.
package control
