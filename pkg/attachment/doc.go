// Package attachment names one attachment of a sandbox to a network, the pod it serves and the network namespace it lives in.
package attachment
