// Package identity tells one network namespace from another, without netlink: what package kernel and those share that need nothing else of it.
package identity
