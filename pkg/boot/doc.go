// Package boot tells one boot of the machine from another.
package boot
