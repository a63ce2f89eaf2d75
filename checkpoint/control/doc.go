// Package control is the control socket of relink-agent: its path, its requests and answers, and a client.
//
// The socket is a unix socket that only root may use. It uses HTTP and JSON, so that curl --unix-socket works. A request with content is a
// POST:
//
//	GET  /v1/status   a Status
//	POST /v1/pause    a PauseRequest; the answer is a Pause
//	POST /v1/resume   no content either way
//	POST /v1/owner    an owner.Question; the answer is an owner.Answer
//	POST /v1/claim    an owner.Fulfilment; no content
//	POST /v1/owners   a list of owners; the answer is a list of owner.Judgement
//	POST /v1/pool/refill   a pool.Demand; no content
//	POST /v1/pool/acquire  a pool.Acquisition; the answer is a pool.Acquired
//	POST /v1/pool/claim    a pool.ClaimedAddress; no content
//	POST /v1/pool/import   a pool.Import; the answer is a pool.Imported
//	GET  /v1/sandboxes the container runtime's Sandboxes
//	GET  /healthz, /readyz, /metrics
//
// A refused request gets a Refusal as its body. Package serve is the agent's end.
//
// The client writes and reads the little of HTTP/1.0 that it needs. With net/http, relink-ipam has 8.3 MB and not 5.3, and starts 0.2 ms
// later, of 1.8 ms. relink-macvlan has 10.3 MB and not 8.3, and starts 0.1 ms later. Each start of a pod would wait for that, also on a
// network that asks nobody.
package control
