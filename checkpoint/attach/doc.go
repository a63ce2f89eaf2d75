// Package attach is the life of one attachment as the interface plugins run it: ADD, CHECK, DEL, STATUS and GC, checkpoint included.
package attach
