// Package printable makes text that strangers had a hand in fit for a terminal: a pod chooses the names and aliases of its devices.
package printable
