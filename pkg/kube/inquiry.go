package kube

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// inquiryLimit bounds the questions to a slow API about one attachment.
	inquiryLimit = 30 * time.Second
	// keptFor is how long an answer waits for the runtime's next try. The kubelet tries again after some seconds.
	keptFor = time.Minute
	// maxInquiries bounds the inquiries, those under way and those whose answer is kept.
	maxInquiries = 1024
)

// inquiries are the inquiries by their questions. A question has the UID of its pod, so that no other pod gets an answer. The
// zero value is ready for use.
//
// A pod can need several questions to the API, one after the other. If the API is slow, they take longer than an ADD waits.
// So an inquiry goes on when its asker has left, and the next try of the runtime finds the answer, or joins the inquiry.
type inquiries struct {
	mu         sync.Mutex
	byQuestion map[owner.Question]*inquiry
}

// inquiry is a question that is being answered. done is closed when answer and err are there. left says that an asker has gone
// without them.
type inquiry struct {
	ready     chan struct{}
	answer    owner.Answer
	err       error
	abandoned bool
	ended     time.Time
}

// ask answers the question by find. It returns when ctx ends, and find goes on. Only a question of an ADD that nobody has
// answered in time leaves an answer for later, and only one ADD gets it.
func (i *inquiries) ask(ctx context.Context, q owner.Question, find func(context.Context) (owner.Answer, error)) (owner.Answer, error) {
	entry, ok := i.begin(ctx, q, find)
	if !ok {
		return find(ctx)
	}
	select {
	case <-entry.ready:
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if entry.ended.IsZero() {
		entry.abandoned = true
		return owner.Answer{}, unavailable(errors.New("the Kubernetes API is slow: the answer is kept for the next try"))
	}
	if i.byQuestion[q] == entry {
		delete(i.byQuestion, q)
	}
	return entry.answer, entry.err
}

// begin returns the inquiry for the question: the one that is there, or a new one. ok is false if there are too many.
func (i *inquiries) begin(ctx context.Context, q owner.Question, find func(context.Context) (owner.Answer, error)) (entry *inquiry, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.byQuestion, func(_ owner.Question, old *inquiry) bool {
		return !old.ended.IsZero() && time.Since(old.ended) > keptFor
	})
	if entry := i.byQuestion[q]; entry != nil {
		return entry, true
	}
	if len(i.byQuestion) >= maxInquiries {
		return nil, false
	}
	if i.byQuestion == nil {
		i.byQuestion = map[owner.Question]*inquiry{}
	}
	entry = &inquiry{ready: make(chan struct{})}
	i.byQuestion[q] = entry
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), inquiryLimit)
		defer cancel()
		answer, err := find(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		entry.answer, entry.err, entry.ended = answer, err, time.Now()
		if i.byQuestion[q] == entry && entry.abandoned && err != nil && !errors.Is(err, owner.ErrInvalid) {
			delete(i.byQuestion, q) // There is no answer: the next try asks anew.
		}
		close(entry.ready)
	}()
	return entry, true
}
