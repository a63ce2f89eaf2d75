package fence

// NodeObject is what is known of a Node object.
type NodeObject string

// What is known of a Node object.
const (
	// Ready means that the kubelet has answered lately.
	Ready    NodeObject = "ready"
	NotReady NodeObject = "not ready"
	// Gone means that the API itself does not have it.
	Gone NodeObject = "gone"
	// Unknown means that the API did not say.
	Unknown NodeObject = "unknown"
)

// PartState is what becomes of a store's part of a block.
type PartState string

// What becomes of a store's part of a block.
const (
	ToFence PartState = "to fence"
	Fenced  PartState = "fenced"
	// FencedBefore means that somebody else has fenced it.
	FencedBefore PartState = "fenced before"
	// Skipped means that it was left as it is, because the node lives.
	Skipped PartState = "left"
	Failed  PartState = "failed"
)

// Result is what a run has done, or would do.
type Result struct {
	Node string `json:"node"`
	// Object is what the API tells of the Node object, ObjectReason why it is unknown.
	Object       NodeObject `json:"object"`
	ObjectReason string     `json:"objectWhy,omitempty"`
	// Boot is the boot that the kubelet has told last, empty for none.
	Boot string `json:"boot,omitempty"`
	// Parts are what is fenced. Spared are the stores of the node that are not.
	Parts  []Part   `json:"parts"`
	Spared []string `json:"spared,omitempty"`
	// Alive says by what the node has shown that it lives, empty if it has not. Nothing was fenced after that.
	Alive string `json:"alive,omitempty"`
}

// Part is what a store has of a block.
type Part struct {
	Block   string `json:"block"`
	Pool    string `json:"pool"`
	Network string `json:"network"`
	Store   string `json:"store"`
	// Addresses is how many it has, and Asks how many it asks other nodes for.
	Addresses int `json:"addresses"`
	Asks      int `json:"asks,omitempty"`
	// ThisBoot says that the store was in use in that boot.
	ThisBoot bool      `json:"thisBoot"`
	State    PartState `json:"state"`
	// Reason is why it was not fenced, or the proof by which it was fenced before.
	Reason string `json:"reason,omitempty"`
}

// Count returns how many parts are in the state.
func (r Result) Count(s PartState) (n int) {
	for _, p := range r.Parts {
		if p.State == s {
			n++
		}
	}
	return n
}

// Addresses returns how many addresses the parts in that state have.
func (r Result) Addresses(s PartState) (n int) {
	for _, p := range r.Parts {
		if p.State == s {
			n += p.Addresses
		}
	}
	return n
}

// Complete says whether all is fenced.
func (r Result) Complete() bool { return r.Alive == "" && r.Count(Skipped)+r.Count(Failed) == 0 }
