// Package lease keeps the addresses of networks with their owners: who holds which address, for whom an
// address is reserved, and why. Each network has a file of its own. The package knows nothing of CNI.
package lease
