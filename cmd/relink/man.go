//go:build man

package main

import "github.com/relink-cni/relink/cmd/internal/manual"

// make man runs it.
func init() { manual.Write(newRoot()) }
