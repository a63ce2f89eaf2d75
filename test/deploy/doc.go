// Package deploy shows that what is in deploy/ does what it is for: the manifests are read with the types of the Kubernetes
// API, and the containers that they describe are run by runc.
package deploy
