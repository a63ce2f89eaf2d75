// Package boot identifies the boot of the machine, and tells how long ago it was.
package boot
