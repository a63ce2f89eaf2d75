// Package podevents tells in words what became of the interfaces of pods, as Kubernetes events on these pods. It is what a
// user reads in "kubectl describe pod". It knows nothing of the Kubernetes API: a [Recorder] takes the events there.
package podevents
