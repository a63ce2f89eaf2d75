// Package boot tells one boot of the machine from another, and how long this one has lasted.
package boot
