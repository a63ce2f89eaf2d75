package fence

import "slices"

// Object is what is known of a Node object.
type Object string

// What is known of a Node object.
const (
	// Ready means that the kubelet has answered lately.
	Ready    Object = "ready"
	NotReady Object = "not ready"
	// Gone means that the API itself does not have it.
	Gone Object = "gone"
	// Unknown means that the API did not say.
	Unknown Object = "unknown"
)

// State is what becomes of a store's part of a block.
type State string

// What becomes of a store's part of a block.
const (
	ToFence State = "to fence"
	Fenced  State = "fenced"
	// FencedBefore means that somebody else has fenced it.
	FencedBefore State = "fenced before"
	// Left means that it was left as it is, because the node lives.
	Left   State = "left"
	Failed State = "failed"
)

// Report is what a run has done, or would do.
type Report struct {
	Node string `json:"node"`
	// Object is what the API tells of the Node object, ObjectWhy why it is unknown.
	Object    Object `json:"object"`
	ObjectWhy string `json:"objectWhy,omitempty"`
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
	ThisBoot bool  `json:"thisBoot"`
	State    State `json:"state"`
	// Reason is why it was not fenced, or the proof by which it was fenced before.
	Reason string `json:"reason,omitempty"`
}

// Count returns how many parts are in the state.
func (r Report) Count(s State) (n int) {
	for _, p := range r.Parts {
		if p.State == s {
			n++
		}
	}
	return n
}

// Addresses returns how many addresses the parts in that state have.
func (r Report) Addresses(s State) (n int) {
	for _, p := range r.Parts {
		if p.State == s {
			n += p.Addresses
		}
	}
	return n
}

// Complete says whether all is fenced.
func (r Report) Complete() bool { return r.Alive == "" && r.Count(Left)+r.Count(Failed) == 0 }

func (r Report) clone() Report {
	r.Parts, r.Spared = slices.Clone(r.Parts), slices.Clone(r.Spared)
	return r
}
