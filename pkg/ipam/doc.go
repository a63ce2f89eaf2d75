// Package ipam is the CNI face of relink-ipam: its configuration, its commands, and what they say. The leases themselves are package lease's.
package ipam
