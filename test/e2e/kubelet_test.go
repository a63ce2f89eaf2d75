package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/pkg/sandbox/cri"
	"github.com/relink-cni/relink/test/kubenode"
)

// kubelet is the Kubernetes node of a story, and the pods that it was told to run.
type kubelet struct {
	node *kubenode.Node
	pods []string
}

// kubeletKey is the key of the story's *kubelet in testscript's values.
const kubeletKey = "kubelet"

const kubeletUsage = "kubelet start CONFLIST | network CONFLIST | run POD... | probe POD IPV6 | delete POD... | state FILE | answers POD... | signal NAME SIGNAL | stop"

// signals are what a story can send.
var signals = map[string]syscall.Signal{"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}

// kubelet VERB ... is about a real kubelet with containerd:
//
//	start CONFLIST    starts both
//	network CONFLIST  pods to come use this network
//	run POD...        runs static pods with HTTP servers; then POD is also the name of the pod's namespace
//	probe POD IPV6    runs one such pod, which the kubelet probes every second, also by this IPv6 address of the pod
//	delete POD...     deletes static pods
//	state FILE        writes the pods' sandbox IDs, container IDs and restarts to FILE
//	answers POD...    expects that each pod's HTTP server answers the wire
//	signal NAME SIG   sends STOP or CONT to containerd or to the kubelet
//	stop              deletes all pods and ends both; a story that starts a kubelet ends with it
func cmdKubelet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 1 || len(args) == 1 && args[0] == "stop", kubeletUsage)
	k, ctx := ts.Value(kubeletKey).(*kubelet), context.Background()
	if args[0] != "start" && k.node == nil {
		ts.Fatalf("kubelet start comes first")
	}
	switch args[0] {
	case "start":
		node, err := kubenode.Start(ctx, ts.Getenv("CNI_PATH"), ts.MkAbs(args[1]))
		check(ts, err)
		k.node = node
		ts.Defer(func() { _ = k.stop(ctx) }) // A story that comes here with a node has failed. Its machine is not used again.
	case "network":
		check(ts, k.node.Network(ctx, ts.MkAbs(args[1])))
	case "run":
		k.pods = append(k.pods, args[1:]...)
		check(ts, k.node.Run(ctx, args[1:]...))
		check(ts, k.link(ctx))
	case "probe":
		usage(ts, neg, len(args) == 3, kubeletUsage)
		k.pods = append(k.pods, args[1])
		check(ts, k.node.RunProbed(ctx, args[1], args[2]))
		check(ts, k.link(ctx))
	case "delete":
		check(ts, k.node.Delete(ctx, args[1:]...))
	case "state":
		pods, err := k.node.Pods(ctx)
		check(ts, err)
		var text strings.Builder
		for _, name := range k.pods {
			fmt.Fprintf(&text, "%s: %v\n", name, pods[name])
		}
		check(ts, os.WriteFile(ts.MkAbs(args[1]), []byte(text.String()), 0o600))
	case "signal":
		usage(ts, neg, len(args) == 3 && signals[args[2]] != 0, kubeletUsage)
		check(ts, k.node.Signal(args[1], signals[args[2]]))
	case "stop":
		check(ts, k.stop(ctx))
	case "answers":
		check(ts, k.answer(ctx, args[1:]))
	default:
		ts.Fatalf("usage: %s", kubeletUsage)
	}
}

// link gives the pods' namespaces the names of the pods, for the other commands of the stories.
func (k *kubelet) link(ctx context.Context) error {
	pods, err := k.node.Pods(ctx)
	if err != nil {
		return err
	}
	for name, pod := range pods {
		path := filepath.Join("/run/netns", name)
		_ = os.Remove(path) // It is there if the pod had another sandbox before.
		if err := os.Symlink(pod.Sandbox.Netns, path); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) answer(ctx context.Context, names []string) error {
	pods, err := k.node.Pods(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, address := range pods[name].Addresses {
			if err := eventually(func() error { return answersAs(address, name) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func answersAs(address, name string) error {
	answer, err := kubenode.Get(address, patience)
	if err == nil && answer != name {
		err = fmt.Errorf("%s answers as %q, want %q", address, answer, name)
	}
	return err
}

func (k *kubelet) stop(ctx context.Context) error {
	if k.node == nil {
		return nil
	}
	for _, name := range k.pods {
		_ = os.Remove(filepath.Join("/run/netns", name)) // It is missing if the pod never ran.
	}
	node := k.node
	k.node, k.pods = nil, nil
	return node.Stop(ctx)
}

// outage [TIME] [COMMAND...] reloads the NICs' driver under the kubelet's pods, leaves it out for that time, runs the command, waits until all pods answer the wire
// again, and reports how long the parts of the outage took. Where an agent runs, no command is needed.
func cmdOutage(ts *testscript.TestScript, neg bool, args []string) {
	k := ts.Value(kubeletKey).(*kubelet)
	usage(ts, neg, k.node != nil, "outage [TIME] [COMMAND...], after kubelet start")
	gap := time.Duration(0)
	if len(args) > 0 {
		if d, err := time.ParseDuration(args[0]); err == nil {
			gap, args = d, args[1:]
		}
	}
	pods, err := k.node.Pods(context.Background())
	check(ts, err)
	wait := kubenode.Watch(context.Background(), []string{"eth0", "eth1"}, pods)
	cmdReload(ts, false, []string{"off"})
	time.Sleep(gap)
	cmdReload(ts, false, []string{"on"})
	if len(args) > 0 {
		err = run(ts, nil, args[0], args[1:]...)
	}
	outage, watchErr := wait()
	check(ts, err)
	check(ts, watchErr)
	_, _ = fmt.Fprint(ts.Stdout(), outage)
	ts.Logf("%v", outage)
}

// survey is a program that tells what the container runtime tells of the node's sandboxes. It finds the runtime as relink-agent
// does. It fails if something did not tell all.
func survey() {
	runtime, err := cri.New("")
	exitOn(err)
	sandboxes, err := runtime.Sandboxes(context.Background())
	for _, s := range sandboxes {
		fmt.Printf("%s: %v, sandbox %s\n", s.Netns, s.Pod, s.ContainerID)
	}
	if err != nil {
		fmt.Println("incomplete:", err)
		os.Exit(1)
	}
}
