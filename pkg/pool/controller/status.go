package controller

import (
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

// maxHinted is how many blocks the hint is about: 8 KB.
const maxHinted = 1 << 16

// Status returns the status of a pool with those blocks, without Sequence, Updated, Recovery, and the times of the conditions. overlapping are the pools
// that share addresses with it, and waits are the nodes that its recovery waits for. What nodes have is counted, also if the spec is wrong: the
// finalizer's policy believes it.
func Status(p pool.Pool, overlapping []pool.Pool, blocks []pool.Block, waits []pool.Node) pool.Status {
	s := pool.Status{Existing: int64(len(blocks)), ObservedGeneration: p.Metadata.Generation}
	for _, b := range blocks {
		s.Granted += int64(len(b.TakenOffsets()))
	}
	l, err := p.Layout()
	if err == nil {
		s.Blocks, s.Addresses, s.Free = l.Blocks(), l.Addresses().String(), hint(l.Blocks(), blocks)
	}
	s.Conditions = conditions(p, err, err == nil && l.Exhausted(blocks), len(blocks), overlapping, waits)
	return s
}

// conditions returns what holds of a pool with that many blocks. wrong says what is wrong with its spec, and full that nobody can take an address.
func conditions(p pool.Pool, wrong error, full bool, blocks int, overlapping []pool.Pool, waits []pool.Node) []pool.Condition {
	exhausted := pool.Condition{Status: pool.False, Reason: pool.AddressesFree, Message: "nobody has some of the addresses"}
	switch {
	case wrong != nil:
		exhausted = pool.Condition{Status: pool.Unknown, Reason: pool.InvalidSpec, Message: wrong.Error()}
	case full:
		exhausted = pool.Condition{Status: pool.True, Reason: pool.NoAddressFree, Message: "nodes have all addresses: add a range, or delete what nobody needs"}
	}
	overlap := pool.Condition{Status: pool.False, Reason: pool.NoOtherPool, Message: "no other pool has addresses of it"}
	if reason := p.OverlapReason(overlapping); reason != "" {
		overlap = pool.Condition{Status: pool.True, Reason: pool.OlderPool, Message: reason}
	} else if len(overlapping) > 0 {
		overlap = pool.Condition{Status: pool.True, Reason: pool.YoungerPool, Message: "AddressPool " + overlapping[0].Metadata.Name + " has addresses of it, too, and gives nothing new"}
	}
	recovering := pool.Condition{Status: pool.False, Reason: pool.StateKnown, Message: "the API knows what nodes have"}
	if r := p.Status.Recovery; r != nil {
		recovering = pool.Condition{Status: pool.True, Reason: pool.StateLost, Message: fmt.Sprintf("the nodes say what they have, and %d have not said it: %s", len(waits), r.Message)}
	}
	terminating := pool.Condition{Status: pool.False, Reason: pool.NotDeleted, Message: "nobody has deleted it"}
	if p.Metadata.DeletionTimestamp != "" {
		terminating = pool.Condition{Status: pool.True, Reason: pool.Deleted, Message: fmt.Sprintf("it is being deleted, and waits for the end of %d blocks", blocks)}
	}
	list := []pool.Condition{{}, exhausted, overlap, recovering, terminating}
	list[0] = ready(p.Spec.Paused, terminating, recovering, exhausted, overlap)
	for i, t := range []pool.ConditionType{pool.Ready, pool.Exhausted, pool.Overlapping, pool.Recovering, pool.Terminating} {
		list[i].Type, list[i].ObservedGeneration = t, p.Metadata.Generation
		list[i].Message = printable.Shorten(list[i].Message, pool.MaxMessage)
	}
	return list
}

// ready returns the condition Ready by the others. A pool is paused while it recovers: the end of the pause alone does not help then.
func ready(paused bool, conditions ...pool.Condition) pool.Condition {
	if paused {
		conditions = append(conditions, pool.Condition{Reason: pool.Paused, Message: "spec.paused is true"})
	}
	stops := slices.DeleteFunc(conditions, func(c pool.Condition) bool {
		return !slices.Contains([]pool.Reason{pool.Deleted, pool.StateLost, pool.InvalidSpec, pool.OlderPool, pool.Paused}, c.Reason)
	})
	if len(stops) == 0 {
		return pool.Condition{Status: pool.True, Reason: pool.Available, Message: "nodes may take addresses of it"}
	}
	var messages []string
	for _, c := range stops {
		messages = append(messages, c.Message)
	}
	return pool.Condition{Status: pool.False, Reason: stops[0].Reason, Message: strings.Join(messages, ", and ")}
}

// hint returns a bit for each of the first of n blocks, 1 for one that does not exist.
func hint(n int64, blocks []pool.Block) string {
	bits := make([]byte, (min(n, maxHinted)+7)/8)
	for i := range min(n, maxHinted) {
		bits[i/8] |= 1 << (i % 8)
	}
	for _, b := range blocks {
		if i := b.Spec.Index; i >= 0 && i < min(n, maxHinted) {
			bits[i/8] &^= 1 << (i % 8)
		}
	}
	return base64.StdEncoding.EncodeToString(bits)
}

// writeStatus writes the status if it has changed, and tells people of each condition that has.
func (c *Controller) writeStatus(ctx context.Context, p pool.Pool, status pool.Status) error {
	instant := c.instant()
	var changed []pool.Condition
	for i := range status.Conditions {
		next := &status.Conditions[i]
		before := p.Status.Condition(next.Type)
		if next.LastTransitionTime = before.LastTransitionTime; before.Status != next.Status {
			next.LastTransitionTime = instant
			if next.Type != pool.Ready && (before.Status != "" || next.Status == pool.True) { // Another condition says why.
				changed = append(changed, *next)
			}
		}
	}
	status.Sequence, status.Updated, status.Recovery = p.Status.Sequence, p.Status.Updated, p.Status.Recovery
	if reflect.DeepEqual(status, p.Status) {
		return nil
	}
	status.Sequence++
	status.Updated = instant
	p.Status = status
	if _, err := c.API.UpdatePoolStatus(ctx, p); err != nil {
		return pool.IgnoreChanged(err)
	}
	for _, n := range changed {
		c.tell(p, n.Status != pool.False && n.Type != pool.Terminating, string(n.Reason), n.Message)
	}
	return nil
}
