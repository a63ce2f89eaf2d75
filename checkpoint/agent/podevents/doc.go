// Package podevents says in words what became of the interfaces of pods. The texts become Kubernetes events and conditions
// of pods: users read them in "kubectl describe pod". The package knows nothing about the Kubernetes API: a [Recorder]
// and [Conditions] pass them on.
package podevents
