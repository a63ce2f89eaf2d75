// Package node brings the stores of a node and the pools of the Kubernetes API together: it takes addresses before the node runs
// out of them, returns what is left over, and moves them between nodes. Package pool decides the steps.
//
// Each step begins with a read of the API, and each change of the API with one of the store. Whatever else a controller remembers only saves
// requests. So a controller that is killed anywhere just begins again.
package node
