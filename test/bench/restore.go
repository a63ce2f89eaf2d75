package main

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

// way is a way to restore all sandboxes.
type way struct {
	name string
	run  func(*node) error
	// once is set for a way that takes minutes, and takes the same time in each round.
	once bool
}

var ways = []way{
	{name: "(a) ip commands", run: byCommands, once: true},
	{name: "(b) library calls", run: byLibrary},
	{name: "(c) bare batches", run: byBatches},
	{name: "(d) relink restore", run: byRelink},
}

// rounds returns how often each way is measured. A round measures all ways one after the other, so other work on the
// machine affects all of them. Short measurements have more rounds.
func rounds(sandboxes int) int {
	if sandboxes <= 250 {
		return 25
	}
	return 9
}

// node is a host with sandboxes, each with a macvlan on a veth.
type node struct {
	bin   string
	store *checkpoint.Store
	// perParent is the number of sandboxes that share a veth. The kernel gives every broadcast and multicast of a
	// macvlan to all others on its parent. So an interface costs more if its parent has more of them, whoever makes it.
	perParent int
	sandboxes []sandbox
	// peak is the highest resident memory of the last process, in KiB.
	peak int64
}

func (n *node) parentName(i int) string { return fmt.Sprintf("lan%d", i/n.perParent) }

type sandbox struct {
	path, parent string
	iface        netstate.Interface
}

// onOne as perParent puts all sandboxes on one parent.
const onOne = math.MaxInt

// benchRestore first measures the numbers of sandboxes in counts, where 100 share a parent. Then it measures those in
// shared, where all share one parent, as the pods of a VLAN do.
func benchRestore(bin string, counts, shared []int, which string) ([]results.Restore, error) {
	rows, err := benchNode(bin, 100, counts, which)
	if err != nil {
		return nil, err
	}
	onOneParent, err := benchNode(bin, onOne, shared, which)
	if err != nil {
		return nil, err
	}
	rows = append(rows, onOneParent...)
	fmt.Println("Restore of all sandboxes after the loss of their parent; milliseconds per sandbox, median of 9 rounds (25 of up to 250 sandboxes), (a) of 1; ratios of a round, median")
	fmt.Println()
	fmt.Println(results.Results{Restore: rows}.RestoreTable())
	return rows, nil
}

func benchNode(bin string, perParent int, counts []int, which string) ([]results.Restore, error) {
	var rows []results.Restore
	n := &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: perParent}
	defer n.remove()
	for _, count := range counts {
		if err := n.grow(count); err != nil {
			return nil, err
		}
		took, err := n.measure(which)
		if err != nil {
			return nil, err
		}
		check, status, err := n.looks()
		if err != nil {
			return nil, err
		}
		a, b, c, d := took["(a)"], took["(b)"], took["(c)"], took["(d)"]
		each := func(all []float64) float64 { return median(all) / float64(count) }
		rows = append(rows, results.Restore{
			Sandboxes: count, OnParent: min(count, perParent), Commands: each(a), Library: each(b), Batches: each(c), Relink: each(d),
			ToBatches: median(ratios(d, c)), ToLibrary: median(ratios(b, d)), ToCommand: median(a) / median(d),
			PeakMB: n.peak >> 10, CheckS: check.Seconds(), StatusS: status.Seconds(),
		})
	}
	return rows, nil
}

// ratios returns the ratio of each round.
func ratios(over, under []float64) []float64 {
	var all []float64
	for i := range min(len(over), len(under)) {
		all = append(all, over[i]/under[i])
	}
	return all
}

// median returns the median, or 0 for an empty list.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(of))[len(of)/2]
}

// grow adds sandboxes until there are count of them. Each has an address, a default route
// and a checkpoint.
func (n *node) grow(count int) error {
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	for i := len(n.sandboxes); i < count; i++ {
		path := fmt.Sprintf("/run/relink-bench/ns-%05d", i)
		if err := fresh.Make(path); err != nil {
			return err
		}
		n.sandboxes = append(n.sandboxes, sandbox{path: path, parent: n.parentName(i), iface: describe(i)})
	}
	if err := n.parents(); err != nil {
		return err
	}
	for i := range n.sandboxes {
		if err := n.attach(host, i); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the sandboxes and their checkpoints.
func (n *node) remove() {
	for _, s := range n.sandboxes {
		_ = unix.Unmount(s.path, unix.MNT_DETACH)
		_ = os.Remove(s.path)
		_ = exec.Command("ip", "link", "del", s.parent).Run()
	}
	_ = os.RemoveAll(n.store.Dir())
}

func describe(i int) netstate.Interface {
	addr := netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)})
	mac := net.HardwareAddr{2, 0, 0, 1, byte(i >> 8), byte(i)}
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", Index: 2, MAC: mac.String(), MTU: 1500, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Addresses: []netstate.Address{{Prefix: netip.PrefixFrom(addr, 10), Broadcast: netip.MustParseAddr("10.127.255.255"), Label: "eth0"}},
		Routes: []netstate.Route{{
			Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.64.255.254"), Table: 254, Protocol: 3, Type: 1,
		}},
	}
}

// attach builds the sandbox's interface and saves its checkpoint.
func (n *node) attach(host *kernel.Namespace, i int) error {
	s := &n.sandboxes[i]
	ns, err := kernel.Open(s.path)
	if err != nil {
		return err
	}
	defer ns.Close()
	parent, err := host.Index(s.parent)
	if err != nil {
		return err
	}
	if there, err := ns.Exists("eth0"); err != nil || there {
		return err
	}
	index, err := kernel.Create(host, ns, parent, s.iface.Link)
	if err != nil {
		return err
	}
	whole := s.iface
	whole.Settings = map[string]string{"ipv4/arp_notify": "1"} // Each ADD sets and records it.
	if err := ns.Configure(index, whole, true); err != nil {
		return err
	}
	devices, err := host.Devices()
	if err != nil {
		return err
	}
	live, err := kernel.Capture(host, ns, devices, "eth0", kernel.Extent{})
	if err != nil {
		return err
	}
	live.Settings = whole.Settings
	return n.store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "bench", ContainerID: filepath.Base(s.path), IfName: "eth0"},
		Pod:        attachment.Pod{Namespace: "bench", Name: filepath.Base(s.path)},
		Namespace:  ns.Identity(), Interface: live, Writer: "bench",
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
	})
}

// parents makes the veths below the interfaces. If they already exist, it deletes them first, and with them all
// interfaces.
func (n *node) parents() error {
	var batch strings.Builder
	for i := 0; i < len(n.sandboxes); i += min(n.perParent, len(n.sandboxes)) {
		name := n.parentName(i)
		_ = exec.Command("ip", "link", "del", name).Run()
		fmt.Fprintf(&batch, "link add %s type veth peer name peer-%s\nlink set %s up\nlink set peer-%s up\n", name, name, name, name)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make parents: %w: %s", err, out)
	}
	return nil
}

// measure returns the times of each way in milliseconds, by the first three letters of its name.
func (n *node) measure(which string) (map[string][]float64, error) {
	took := map[string][]float64{}
	for round := range rounds(len(n.sandboxes)) {
		for _, w := range ways {
			if !strings.Contains(which, w.name[1:2]) || w.once && round > 0 {
				continue
			}
			d, err := n.measureOnce(w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			took[w.name[:3]] = append(took[w.name[:3]], float64(d.Microseconds())/1000)
		}
	}
	return took, nil
}

// settling is the time that the kernel gets to finish its work on the lost devices.
const settling = 100 * time.Millisecond

func (n *node) measureOnce(w way) (time.Duration, error) {
	if err := n.parents(); err != nil {
		return 0, err
	}
	runtime.GC()
	time.Sleep(settling)
	start := time.Now()
	if err := w.run(n); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return took, n.verify()
}

// verify returns an error if a sandbox has not got everything back.
func (n *node) verify() error {
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	devices, err := host.Devices()
	if err != nil {
		return err
	}
	for _, s := range n.sandboxes {
		ns, err := kernel.Open(s.path)
		if err != nil {
			return err
		}
		live, err := kernel.Capture(host, ns, devices, "eth0", kernel.Extent{})
		ns.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		want := s.iface
		want.Addresses = nil // Way (a) sets no broadcast address.
		if diffs := netstate.Diff(want, live); len(diffs) > 0 || len(live.Addresses) != 1 {
			return fmt.Errorf("%s: %v", s.path, diffs)
		}
	}
	return nil
}

// byCommands is the published manual fix. It uses ip(8) for everything, and enters each namespace with nsenter(1).
func byCommands(n *node) error {
	for i, s := range n.sandboxes {
		temporary := fmt.Sprintf("tmp%d", i)
		in := "--net=" + s.path
		for _, args := range [][]string{
			{"ip", "link", "add", "link", s.parent, "name", temporary, "type", "macvlan", "mode", "bridge"},
			{"ip", "link", "set", temporary, "netns", s.path},
			{"nsenter", in, "ip", "link", "set", temporary, "name", "eth0"},
			{"nsenter", in, "ip", "link", "set", "eth0", "address", s.iface.Link.MAC},
			{"nsenter", in, "ip", "link", "set", "eth0", "up"},
			{"nsenter", in, "ip", "addr", "add", s.iface.Addresses[0].String(), "dev", "eth0"},
			{"nsenter", in, "ip", "route", "add", "default", "via", s.iface.Routes[0].Gateway.String()},
		} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", args, err, out)
			}
		}
	}
	return nil
}

// looks returns how long relink check and relink status take, as whole processes in turn.
func (n *node) looks() (check, status time.Duration, err error) {
	took := map[string][]time.Duration{}
	for range 9 {
		for _, verb := range []string{"check", "status"} {
			start := time.Now()
			if out, err := exec.Command(filepath.Join(n.bin, "relink"), "--checkpoint-dir", n.store.Dir(), verb).CombinedOutput(); err != nil {
				return 0, 0, fmt.Errorf("relink %s: %w: %s", verb, err, out)
			}
			took[verb] = append(took[verb], time.Since(start))
		}
	}
	for _, all := range took {
		slices.Sort(all)
	}
	return took["check"][4], took["status"][4], nil
}

// byRelink runs relink restore as a whole process with all its features.
func byRelink(n *node) error {
	cmd := exec.Command(filepath.Join(n.bin, "relink"), "--checkpoint-dir", n.store.Dir(), "restore")
	cmd.Env = append(os.Environ(), "GOMAXPROCS="+fmt.Sprint(runtime.NumCPU()))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	n.peak = max(n.peak, maxRSS(cmd.ProcessState))
	return nil
}
