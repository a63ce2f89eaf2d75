// Package hostends keeps the host access of running pods as it is recorded, and gives it to running pods and takes it away.
//
// The addresses of a node come and go, and network managers delete routes and rules that they do not know. So the Reconciler,
// which is a part of relink-agent, hears of each such change, and makes right what follows from it: the host's rules and
// routes, and the pods' routes to the node. What somebody has changed in a pod it reports and leaves alone.
//
// The path itself is package hostaccess'.
package hostends
