package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/test/native"
)

// commands are the commands of the stories in addition to testscript's own.
var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"pod":     cmdPod,
	"attach":  cmdAttach,
	"detach":  cmdDetach,
	"state":   cmdState,
	"host":    cmdHost,
	"reach":   cmdReach,
	"unreach": cmdUnreach,
	"up":      cmdUp,
	"wire":    cmdWire,
	"reload":  cmdReload,
	"device":  cmdDevice,
	"await":   cmdAwait,
	"soon":    cmdSoon,
	"kubelet": cmdKubelet,
	"outage":  cmdOutage,
}

func check(ts *testscript.TestScript, err error) {
	if err != nil {
		ts.Fatalf("%v", err)
	}
}

func usage(ts *testscript.TestScript, neg bool, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// run runs a program in the story's directory, with the story's environment and some more variables.
func run(ts *testscript.TestScript, env []string, name string, args ...string) error {
	path := name
	for _, dir := range strings.Split(ts.Getenv("PATH"), ":") {
		if _, err := os.Stat(dir + "/" + name); err == nil {
			path = dir + "/" + name
			break
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.Getenv("WORK")
	for _, v := range []string{"PATH", "CNI_PATH", "NETCONFPATH", "CAP_ARGS", "RELINK_CHECKPOINT_DIR", "RELINK_VM", native.Env, "RELINK_FAILPOINT_ALL_PROCESSES"} {
		if value := ts.Getenv(v); value != "" {
			cmd.Env = append(cmd.Env, v+"="+value)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// pod NAME... makes pods: network namespaces under /run/netns.
func cmdPod(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "pod NAME...")
	var lines []string
	for _, name := range args {
		lines = append(lines, "netns add "+name)
	}
	check(ts, ipBatch("", lines...))
	for _, name := range args {
		check(ts, ipBatch(name, "link set lo up"))
	}
}

// attach POD NETWORK [IFNAME] attaches a pod with cnitool, as a runtime would.
func cmdAttach(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "attach POD NETWORK [IFNAME]")
	check(ts, cnitool(ts, "add", args))
}

// detach POD NETWORK [IFNAME] detaches a pod with cnitool, as a runtime would.
func cmdDetach(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "detach POD NETWORK [IFNAME]")
	check(ts, cnitool(ts, "del", args))
}

func cnitool(ts *testscript.TestScript, verb string, args []string) error {
	pod, network, ifName := args[0], args[1], "eth0"
	if len(args) == 3 {
		ifName = args[2]
	}
	env := []string{
		"CNI_IFNAME=" + ifName,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod + ";K8S_POD_UID=uid-of-" + pod,
	}
	return run(ts, env, "cnitool", verb, network, "/run/netns/"+pod)
}

// state POD FILE writes to FILE all that iproute2 tells of the pod's interfaces, without incidental values. Stories
// compare such files with cmp.
func cmdState(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "state POD FILE")
	state, err := podState(args[0])
	check(ts, err)
	check(ts, os.WriteFile(ts.MkAbs(args[1]), []byte(state), 0o600))
}

// host DEVICE FILE writes to FILE all that iproute2 tells of a device of the host, without incidental values. Stories
// compare such files with cmp.
func cmdHost(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "host DEVICE FILE")
	state, err := deviceState(args[0])
	check(ts, err)
	check(ts, os.WriteFile(ts.MkAbs(args[1]), []byte(state), 0o600))
}

// reach POD ADDRESS... expects that each address answers the pod, as soon as the link is there.
func cmdReach(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 1, "reach POD ADDRESS...")
	for _, address := range args[1:] {
		check(ts, eventually(func() error { return ping(args[0], address) }))
	}
}

// unreach POD ADDRESS... expects that no address answers the pod.
func cmdUnreach(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 1, "unreach POD ADDRESS...")
	for _, address := range args[1:] {
		if ping(args[0], address) == nil {
			ts.Fatalf("%s answers %s", address, args[0])
		}
	}
}

func ping(pod, address string) error {
	return within(pod, func() error { return program("ping", "-q", "-c", "1", "-W", "1", address) })
}

// up DEVICE... sets host devices up and waits until they have carrier.
func cmdUp(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "up DEVICE...")
	var lines []string
	for _, name := range args {
		lines = append(lines, "link set "+name+" up")
	}
	check(ts, ipBatch("", lines...))
	for _, name := range args {
		check(ts, eventually(func() error { return hasCarrier(name) }))
	}
}

func hasCarrier(name string) error {
	b, err := os.ReadFile("/sys/class/net/" + name + "/carrier")
	if err == nil && string(b) != "1\n" {
		err = fmt.Errorf("%s has no carrier", name)
	}
	return err
}

// wire VID[,VID] ADDRESS... gives addresses to the wire's other end, on a VLAN or on a stack of two VLANs with the
// outer one first. A VID of 0 means no VLAN. ad: before a VID makes the VLAN 802.1ad.
func cmdWire(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "wire VID[,VID] ADDRESS...")
	device := "wire0"
	var lines []string
	for vid := range strings.SplitSeq(args[0], ",") {
		if vid == "0" {
			continue
		}
		id, isAD := strings.CutPrefix(vid, "ad:")
		protocol := "802.1q"
		if isAD {
			protocol = "802.1ad"
		}
		on := device
		device += "." + id
		if !onWire(device) {
			lines = append(lines, fmt.Sprintf("link add link %s name %s type vlan protocol %s id %s", on, device, protocol, id))
		}
		lines = append(lines, "link set "+device+" up")
	}
	for _, address := range args[1:] {
		nodad := ""
		if strings.Contains(address, ":") {
			nodad = "nodad"
		}
		lines = append(lines, fmt.Sprintf("addr add %s dev %s %s", address, device, nodad))
	}
	check(ts, ipBatch("wire", lines...))
}

// onWire reports whether the wire's other end has the device.
func onWire(device string) bool {
	return within("wire", func() error {
		_, err := net.InterfaceByName(device)
		return err
	}) == nil
}

// reload [off|on] removes the NICs' driver from the kernel and loads it again, or does one of the two. On a host without the driver, it takes
// the NICs away, and brings them back.
func cmdReload(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0 || len(args) == 1 && (args[0] == "off" || args[0] == "on"), "reload [off|on]")
	off, on := []string{"rmmod", "e1000e"}, []string{"modprobe", "e1000e"}
	if native.Inside() {
		off, on = []string{"nics", "off"}, []string{"nics", "on"}
	}
	half := strings.Join(args, "")
	if half != "on" {
		check(ts, program(off[0], off[1:]...))
	}
	if half != "off" {
		check(ts, program(on[0], on[1:]...))
		check(ts, awaitDevices("eth0", "eth1"))
	}
}

// device NAME... expects that the host has these devices. ! device NAME... expects that it has none of them.
func cmdDevice(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, false, len(args) > 0, "device NAME...")
	for _, name := range args {
		_, err := os.Stat("/sys/class/net/" + name)
		if (err == nil) == neg {
			ts.Fatalf("device %s is there: %v", name, err == nil)
		}
	}
}

// soon PROGRAM ARGUMENT... runs the program again and again until it succeeds, or, after a !, until it fails. It runs half of the
// time: the machine has one processor, and the program waits for others.
func cmdSoon(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, false, len(args) > 0, "soon PROGRAM ARGUMENT...")
	check(ts, eventually(func() error {
		start := time.Now()
		err := run(ts, nil, args[0], args[1:]...)
		if neg == (err != nil) {
			return nil
		}
		time.Sleep(time.Since(start))
		if neg {
			return fmt.Errorf("%s still succeeds", strings.Join(args, " "))
		}
		return err
	}))
}

// await FILE... waits until the files exist.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 0, "await FILE...")
	for _, name := range args {
		check(ts, eventually(func() error {
			_, err := os.Stat(ts.MkAbs(name))
			return err
		}))
	}
}
