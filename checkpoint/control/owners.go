package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// The statuses of a refused question about owners. Any other one means that the same question may be answered later.
const (
	// StatusInvalid stands for owner.ErrInvalid, StatusDiffers for owner.ErrDiffers.
	StatusInvalid = 422
	StatusDiffers = 409
)

var (
	_ owner.Asker     = Client{}
	_ owner.Judge     = Client{}
	_ sandbox.Runtime = Client{}
)

// Ask asks the agent what the Kubernetes API knows of a pod. It is owner.Asker's.
func (c Client) Ask(ctx context.Context, q owner.Question) (owner.Answer, error) {
	var a owner.Answer
	err := ownerError(c.request(ctx, "POST", OwnerPath, q, &a))
	if err == nil && a.Owner == (attachment.Owner{}) {
		err = fmt.Errorf("%w: relink-agent names nobody", owner.ErrUnavailable)
	}
	return a, err
}

// Fulfil has the agent write addresses into an IPAMClaim. It is owner.Asker's.
func (c Client) Fulfil(ctx context.Context, f owner.Fulfilment) error {
	return ownerError(c.request(ctx, "POST", ClaimPath, f, nil))
}

// ownerError gives an error of request the meaning that owner.Asker has for it.
func ownerError(err error) error {
	if err == nil {
		return nil
	}
	var refused *refusedError
	switch {
	case errors.Is(err, ErrNoAgent):
		return noAgentError{err}
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: %w", owner.ErrUnavailable, err)
	}
	switch refused.status {
	case statusNotFound:
		return fmt.Errorf("%w: this relink-agent is too old: it does not know of owners", owner.ErrUnavailable)
	case StatusInvalid:
		return fmt.Errorf("%w: %s", owner.ErrInvalid, refused.message)
	case StatusDiffers:
		return fmt.Errorf("%w: %s", owner.ErrDiffers, refused.message)
	}
	return fmt.Errorf("%w: %s", owner.ErrUnavailable, refused.message)
}

// statusNotFound is the answer to a path that an older agent does not have.
const statusNotFound = 404

// noAgentError is owner.ErrUnavailable for a node without an agent. It matches owner.ErrNoAsker, too.
type noAgentError struct{ noAgent error }

func (n noAgentError) Error() string { return owner.ErrUnavailable.Error() + ": " + n.noAgent.Error() }

func (n noAgentError) Unwrap() []error {
	return []error{owner.ErrUnavailable, owner.ErrNoAsker, n.noAgent}
}

// judgePatience is how long the agent may take to judge MaxOwners: it asks the API about each of them.
const judgePatience = 40 * time.Second

// Judge has the agent ask the API about each owner. It is owner.Judge's. Owners of which the agent says nothing are unknown.
func (c Client) Judge(ctx context.Context, owners []attachment.Owner) []owner.Judgement {
	if c.Patience == 0 {
		c.Patience = judgePatience
	}
	judgements := make([]owner.Judgement, 0, len(owners))
	var err error
	for batch := range slices.Chunk(owners, MaxOwners) {
		var judged []owner.Judgement
		if err == nil { // An agent that does not answer is asked once.
			err = c.request(ctx, "POST", OwnersPath, batch, &judged)
		}
		if err == nil && !matchOwners(judged, batch) {
			err = errors.New("relink-agent has answered about other owners")
		}
		if err == nil {
			judgements = append(judgements, judged...)
			continue
		}
		for _, o := range batch {
			judgements = append(judgements, owner.Judgement{Owner: o, Standing: owner.Unknown, Reason: err.Error()})
		}
	}
	return judgements
}

// matchOwners says whether the judgements are about these owners, in their order.
func matchOwners(judged []owner.Judgement, owners []attachment.Owner) bool {
	return slices.EqualFunc(judged, owners, func(j owner.Judgement, o attachment.Owner) bool { return j.Owner == o })
}

// sandboxesPatience is how long the agent may take to ask the container runtime.
const sandboxesPatience = 15 * time.Second

// Sandboxes has the agent ask the container runtime. It is sandbox.Runtime's.
func (c Client) Sandboxes(ctx context.Context) ([]sandbox.RuntimeSandbox, error) {
	if c.Patience == 0 {
		c.Patience = sandboxesPatience
	}
	var s Sandboxes
	if err := c.request(ctx, "GET", SandboxesPath, nil, &s); err != nil {
		return nil, err
	}
	switch {
	case s.Sandboxes == nil: // An agent without sandboxes says so by an empty list.
		return nil, errors.New("relink-agent has answered without a list of sandboxes")
	case s.NoRuntime:
		return s.Sandboxes, fmt.Errorf("%w: %s", sandbox.ErrNoRuntime, strings.TrimPrefix(s.Incomplete, sandbox.ErrNoRuntime.Error()+": "))
	case s.Incomplete != "":
		return s.Sandboxes, errors.New(s.Incomplete)
	}
	return s.Sandboxes, nil
}
