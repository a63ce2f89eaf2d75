package checkpoint

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/attachment"
)

// NetworkUnknown is the network of an attachment of which nothing tells the network.
const NetworkUnknown = "unknown"

// UnnamedID is the container ID under which a sandbox is remembered whose own
// container ID nothing tells: made from the namespace, and so the same each time.
func UnnamedID(n attachment.Namespace) string { return fmt.Sprintf("ns-%d-%d", n.Inode, n.Cookie) }
