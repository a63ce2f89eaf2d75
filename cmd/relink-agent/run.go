package main

import (
	"context"
	"time"
)

// run watches until the context ends.
func run(ctx context.Context, opts options) error {
	opts.supervisor.ready()
	round := time.NewTicker(opts.supervisor.patience())
	defer round.Stop()
	for {
		opts.supervisor.alive()
		select {
		case <-ctx.Done():
			return nil
		case <-round.C:
		}
	}
}
