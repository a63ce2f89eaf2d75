package attachment

import (
	"errors"
	"fmt"
)

// ErrOtherNamespace says that the namespace is not the recorded one.
var ErrOtherNamespace = errors.New("another namespace is there now")

// Namespace is a network namespace by path and by identity. The path alone proves nothing: /proc/<pid>/ns/net
// and a path below /run/netns can lead to a stranger's namespace later.
type Namespace struct {
	Path string `json:"path,omitzero"`
	// BootID is /proc/sys/kernel/random/boot_id of the boot that the namespace
	// belongs to. No namespace outlives its boot.
	BootID string `json:"bootID"`
	// Device and Inode are those of the nsfs file.
	Device uint64 `json:"device,omitzero"`
	Inode  uint64 `json:"inode,omitzero"`
	// Cookie is the kernel's SO_NETNS_COOKIE. Unlike an inode, it is never given twice in one boot. It is 0 if
	// the namespace was not entered to read it.
	Cookie uint64 `json:"cookie,omitzero"`
}

// NamespaceFile is the nsfs file of a namespace. It identifies the namespace as long as that exists. After that, the kernel can
// give the inode to another one.
type NamespaceFile struct{ Device, Inode uint64 }

// File returns the file of the namespace.
func (n Namespace) File() NamespaceFile { return NamespaceFile{n.Device, n.Inode} }

// Same returns nil if both are the same namespace, and otherwise ErrOtherNamespace with the reason. Paths are
// not compared.
func (n Namespace) Same(live Namespace) error {
	switch {
	case n.BootID != live.BootID:
		return fmt.Errorf("%w: it was recorded in an earlier boot (boot ID %s, now %s)", ErrOtherNamespace, n.BootID, live.BootID)
	case n.File() != live.File():
		return fmt.Errorf("%w (inode %d:%d, recorded %d:%d)", ErrOtherNamespace, live.Device, live.Inode, n.Device, n.Inode)
	case n.Cookie != 0 && live.Cookie != 0 && n.Cookie != live.Cookie:
		return fmt.Errorf("%w, with a reused inode number (cookie %d, recorded %d)", ErrOtherNamespace, live.Cookie, n.Cookie)
	}
	return nil
}
