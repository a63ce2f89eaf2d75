// Package kube writes Kubernetes events on pods. It is the only package that links client-go, and only relink-agent links it.
//
// It watches nothing and keeps no copies of objects: the agent needs little memory. A [Recorder] asks the API about one pod
// at a time, just before it writes an event on it.
package kube
