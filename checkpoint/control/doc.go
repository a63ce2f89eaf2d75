// Package control is the control socket of relink-agent: its path, its requests and answers, and a client.
//
// The socket is a unix socket that only root may use. It uses HTTP and JSON, so that curl --unix-socket works:
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
//	GET  /v1/pools         a list of pool.Pool
//	GET  /v1/blocks?pool=  a list of pool.Block
//	GET  /v1/address?address=  a list of pool.AddressStatus
//	GET  /v1/sandboxes the container runtime's Sandboxes
//	GET  /healthz, /readyz, /metrics
//
// A refused request gets a Refusal as its body. The client writes and reads HTTP without net/http, because net/http
// would make the command relink larger by half. Package serve is the agent's end.
package control
