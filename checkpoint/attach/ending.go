package attach

import (
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
)

const (
	// namespaceEndTimeout is how long a DEL waits for an interface whose namespace ends. Usually that takes some milliseconds. Something may
	// keep the namespace for long, and a DEL never fails for that.
	namespaceEndTimeout = 2 * time.Second
	namespaceEndPoll    = 5 * time.Millisecond
)

// awaitInterfaceGone waits until the interface is gone whose namespace cannot be opened any more. The kernel ends a namespace some time after its
// last user, and until then the interface answers for its addresses: nobody else may have them.
func (c *call) awaitInterfaceGone(recorded *checkpoint.Record) error {
	if recorded == nil || recorded.Interface.ParentsInSandbox || len(recorded.Interface.Parents) == 0 {
		return nil
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	for deadline := time.Now().Add(namespaceEndTimeout); ; time.Sleep(namespaceEndPoll) {
		exists, err := host.Receives(recorded.Interface.Parents[0].IfIndex, recorded.Interface.Link.MAC)
		if err != nil || !exists || time.Now().After(deadline) {
			return err
		}
	}
}
