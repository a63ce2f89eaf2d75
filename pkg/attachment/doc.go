// Package attachment identifies one attachment of a sandbox to a network, with the pod that it serves and the
// network namespace that it is in.
package attachment
