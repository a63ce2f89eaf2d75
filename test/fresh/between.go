package fresh

import "context"

// Between is a context for whoever looks twice. It calls Do when somebody waits for its end, which is between the two looks.
type Between struct {
	context.Context
	Do func()
}

// Done calls Do, and returns the channel of the context.
func (b Between) Done() <-chan struct{} {
	b.Do()
	return b.Context.Done()
}
