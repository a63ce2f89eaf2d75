// Package lease keeps the addresses of a network with their owners, in one file for each network: who holds which, for whom one is reserved, and why. It knows nothing of CNI.
package lease
