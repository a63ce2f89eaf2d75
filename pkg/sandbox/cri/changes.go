package cri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/wait"
)

// The pauses between two attempts to listen. CRI-O ends the stream at once unless it was told to send events.
const (
	shortestPause = time.Second
	longestPause  = 5 * time.Minute
)

// Changes returns a channel that receives a value when a container or a sandbox has changed, until ctx is done. A value is a
// hint to look again, and nothing else: changes that come close together give one value, and changes can be missed. A runtime
// without events (containerd before 1.7) gives no values. The channel is never closed.
func (c *Client) Changes(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go c.watchEvents(ctx, changed)
	return changed
}

func (c *Client) watchEvents(ctx context.Context, changed chan<- struct{}) {
	pause := shortestPause
	for ctx.Err() == nil {
		heard, supported := c.receiveEvents(ctx, changed)
		if !supported {
			return
		}
		pause = min(2*pause, longestPause)
		if heard {
			pause = shortestPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// receiveEvents listens until the stream ends. heard says that there were events. supported says that it makes sense to try again.
func (c *Client) receiveEvents(ctx context.Context, changed chan<- struct{}) (heard, supported bool) {
	conn, err := c.connect(ctx)
	if err != nil {
		return false, true
	}
	events, err := conn.api.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		if _, err = events.Recv(); err == nil {
			heard = true
			signal(changed)
		}
	}
	if status.Code(err) == codes.Unimplemented {
		return heard, false
	}
	c.dropIfUnavailable(conn, err)
	if heard {
		signal(changed) // What happens until the next attempt is not heard.
	}
	return heard, true
}

func signal(changed chan<- struct{}) {
	wait.Wake(changed)
}
