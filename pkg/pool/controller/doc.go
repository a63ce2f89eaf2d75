// Package controller keeps what is true of a pool as a whole: its status, its end, the fences of nodes that are declared dead, what is left of
// nodes and owners that are gone, and the end of a recovery. No ADD needs it. Several can run: each step is a change of an object that is still
// as it was read.
package controller
