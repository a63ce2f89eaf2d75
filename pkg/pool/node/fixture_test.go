package node

import (
	"context"
	"errors"

	"pgregory.net/rapid"
)

// tester is a test, or a draw of one.
type tester interface {
	rapid.TB
	Context() context.Context
}

// errAway is the error of an API that does not answer.
var errAway = errors.New("the API does not answer")

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
