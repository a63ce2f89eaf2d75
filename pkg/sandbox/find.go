package sandbox

import (
	"github.com/relink-cni/relink/pkg/attachment"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// FindPaths returns the paths that lead to network namespaces now, for those that List finds. Some runtimes name a namespace by
// a process (/proc/PID/ns/net): that path ends with the process, while other processes of the pod live on in the namespace.
// And a path of the node can be another one in a container. The device, the inode and the cookie prove that a found
// namespace is the recorded one. So FindPaths finds nothing that has no recorded cookie: another namespace can have the inode by
// now.
func FindPaths(namespaces ...attachment.Namespace) map[attachment.Namespace]string {
	paths := map[attachment.Namespace]string{}
	sandboxes, err := List()
	if err != nil {
		return paths // Whoever proves that a namespace is gone reports the reason.
	}
	shown := map[attachment.NamespaceFile][]string{}
	for _, s := range sandboxes {
		shown[s.NamespaceFile] = s.Paths
	}
	for _, ns := range namespaces {
		if path := pathOf(ns, shown[ns.File()]); path != "" {
			paths[ns] = path
		}
	}
	return paths
}

// pathOf returns the first path that leads to the recorded namespace, "" if none does.
func pathOf(recorded attachment.Namespace, paths []string) string {
	if recorded.Cookie == 0 {
		return ""
	}
	for _, path := range paths {
		if id, err := kernelid.Read(path); err == nil && id.Cookie == recorded.Cookie && recorded.Same(id) == nil {
			return path
		}
	}
	return ""
}
