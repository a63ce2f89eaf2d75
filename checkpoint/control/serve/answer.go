package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// answer returns a handler that writes the response, nothing for nil, or a refusal.
func answer(respond func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch response, err := respond(w, r); {
		case err != nil:
			refused := refusalOf(err)
			writeJSON(w, refused.status, control.Refusal{Error: refused.Error()})
		case response == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, response)
		}
	}
}

// post returns a handler that reads a request of at most limit bytes as JSON, and asks the source. It does not use a source that is nil
// before a request comes.
func post[Source, Request, Response any](source Source, limit int64, ask func(Source, context.Context, Request) (Response, error)) http.HandlerFunc {
	return answer(func(w http.ResponseWriter, r *http.Request) (any, error) {
		var request Request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(&request); err != nil {
			return nil, refusal{http.StatusBadRequest, fmt.Errorf("the body must be a %T in JSON: %w", request, err)}
		}
		return ask(source, r.Context(), request)
	})
}

// noContent is for a request whose success has no response.
func noContent[Source, Request any](perform func(Source, context.Context, Request) error) func(Source, context.Context, Request) (any, error) {
	return func(source Source, ctx context.Context, request Request) (any, error) {
		return nil, perform(source, ctx, request)
	}
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	error
}

// refusalOf gives an error the status of which control.Client makes the same error again. The client puts the words of the sentinel before
// it.
func refusalOf(err error) refusal {
	var refused refusal
	if errors.As(err, &refused) {
		return refused
	}
	for _, meaning := range []refusal{
		{control.StatusUnknownPool, pool.ErrUnknown}, {http.StatusServiceUnavailable, pool.ErrUnavailable},
		{control.StatusInvalid, owner.ErrInvalid}, {control.StatusDiffers, owner.ErrDiffers}, {http.StatusServiceUnavailable, owner.ErrUnavailable},
	} {
		if errors.Is(err, meaning.error) {
			return refusal{meaning.status, errors.New(strings.TrimPrefix(err.Error(), meaning.Error()+": "))}
		}
	}
	return refusal{http.StatusServiceUnavailable, err}
}
