// Package pooltest has the objects of address pools in memory, for tests. [API] answers as the Kubernetes API does: it gives UIDs and
// resource versions, and changes an object only if it is still the one that the change names. Nobody checks rights, schemas or
// policies: test/cluster does that on a real API.
package pooltest
