package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// longestInquiry bounds the questions to a slow API about one attachment.
	longestInquiry = 30 * time.Second
	// keptFor is how long an answer waits for the runtime's next try. The kubelet tries again after some seconds.
	keptFor = time.Minute
	// mostInquiries bounds the inquiries, those under way and those whose answer is kept.
	mostInquiries = 1024
)

// inquiries are the inquiries by their questions. A question has the UID of its pod, so that no other pod gets an answer. The
// zero value is ready for use.
//
// A pod can need several questions to the API, one after the other. If the API is slow, they take longer than an ADD waits.
// So an inquiry goes on when its asker has left, and the next try of the runtime finds the answer, or joins the inquiry.
type inquiries struct {
	mu  sync.Mutex
	all map[owner.Question]*inquiry
}

// inquiry is a question that is being answered. done is closed when answer and err are there. left says that an asker has gone
// without them.
type inquiry struct {
	done   chan struct{}
	answer owner.Answer
	err    error
	left   bool
	ended  time.Time
}

// ask answers the question by find. It returns when ctx ends, and find goes on. Only a question of an ADD that nobody has
// answered in time leaves an answer for later, and only one ADD gets it.
func (i *inquiries) ask(ctx context.Context, q owner.Question, find func(context.Context) (owner.Answer, error)) (owner.Answer, error) {
	one, ok := i.begin(ctx, q, find)
	if !ok {
		return find(ctx)
	}
	select {
	case <-one.done:
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-one.done:
		if i.all[q] == one {
			delete(i.all, q)
		}
		return one.answer, one.err
	default:
		one.left = true
		return owner.Answer{}, unavailable(errors.New("the Kubernetes API is slow: the answer is kept for the next try"))
	}
}

// begin returns the inquiry for the question: the one that is there, or a new one. ok is false if there are too many.
func (i *inquiries) begin(ctx context.Context, q owner.Question, find func(context.Context) (owner.Answer, error)) (one *inquiry, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for of, old := range i.all {
		if !old.ended.IsZero() && time.Since(old.ended) > keptFor {
			delete(i.all, of)
		}
	}
	if one := i.all[q]; one != nil {
		return one, true
	}
	if len(i.all) >= mostInquiries {
		return nil, false
	}
	if i.all == nil {
		i.all = map[owner.Question]*inquiry{}
	}
	one = &inquiry{done: make(chan struct{})}
	i.all[q] = one
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestInquiry)
		defer cancel()
		answer, err := find(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		one.answer, one.err, one.ended = answer, err, time.Now()
		if i.all[q] == one && one.left && err != nil && !errors.Is(err, owner.ErrInvalid) {
			delete(i.all, q) // There is no answer: the next try asks anew.
		}
		close(one.done)
	}()
	return one, true
}
