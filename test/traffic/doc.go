// Package traffic keeps pods busy and measures for how long each was cut off: it pings them from the wire, and keeps TCP
// streams open between them and the wire.
package traffic
