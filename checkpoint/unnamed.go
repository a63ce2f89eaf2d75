package checkpoint

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/attachment"
)

// NetworkUnknown stands for the network of an attachment if nothing tells it.
const NetworkUnknown = "unknown"

// UnnamedID is the container ID of a sandbox if nothing tells the real one. It is made from the
// namespace, so it is the same each time.
func UnnamedID(n attachment.Namespace) string { return fmt.Sprintf("ns-%d-%d", n.Inode, n.Cookie) }
