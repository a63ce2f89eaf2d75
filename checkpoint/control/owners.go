package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

var (
	_ owner.Asker     = Client{}
	_ owner.Judge     = Client{}
	_ sandbox.Runtime = Client{}
)

// Ask asks the agent what the Kubernetes API knows of a pod. It is owner.Asker's.
func (c Client) Ask(ctx context.Context, q owner.Question) (a owner.Answer, err error) {
	err = c.requestOwner(ctx, OwnerPath, q, &a)
	if err == nil && a.Owner == (attachment.Owner{}) {
		err = fmt.Errorf("%w: relink-agent names nobody", owner.ErrUnavailable)
	}
	return a, err
}

// Fulfil has the agent write addresses into an IPAMClaim. It is owner.Asker's.
func (c Client) Fulfil(ctx context.Context, f owner.Fulfilment) error {
	return c.requestOwner(ctx, ClaimPath, f, nil)
}

// requestOwner makes a request, and gives its error the meaning that owner.Asker has for it.
func (c Client) requestOwner(ctx context.Context, path string, body, response any) error {
	return unavailable(owner.ErrUnavailable, c.request(ctx, path, body, response), owner.ErrInvalid, owner.ErrDiffers)
}

// Judge has the agent ask the API about each owner. It is owner.Judge's. Owners of which the agent says nothing are unknown.
func (c Client) Judge(ctx context.Context, owners []attachment.Owner) []owner.Judgement {
	judgements := make([]owner.Judgement, 0, len(owners))
	var err error
	for batch := range slices.Chunk(owners, MaxOwners) {
		var judged []owner.Judgement
		if err == nil { // An agent that does not answer is asked once.
			err = c.request(ctx, OwnersPath, batch, &judged)
		}
		if err == nil && !slices.EqualFunc(judged, batch, func(j owner.Judgement, o attachment.Owner) bool { return j.Owner == o }) {
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

// Sandboxes has the agent ask the container runtime. It is sandbox.Runtime's.
func (c Client) Sandboxes(ctx context.Context) ([]sandbox.RuntimeSandbox, error) {
	var s Sandboxes
	if err := c.request(ctx, SandboxesPath, nil, &s); err != nil {
		return nil, err
	}
	switch {
	case s.Sandboxes == nil: // An agent without sandboxes says so by an empty list.
		return nil, errors.New("relink-agent has answered without a list of sandboxes")
	case s.Incomplete != "":
		return s.Sandboxes, errors.New(s.Incomplete)
	}
	return s.Sandboxes, nil
}
