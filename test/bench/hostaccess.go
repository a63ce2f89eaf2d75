package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

// hostAccess has what host access costs: at ADD and DEL, and when the host loses it or gets another address.
type hostAccess struct {
	System string         `json:"system"`
	Attach []accessAttach `json:"attach"`
	Mend   []accessMend   `json:"mend"`
}

// accessAttach has the times of ADD and DEL while Others pods have host access. The ratios compare it with the row of the
// same number without host access.
type accessAttach struct {
	Others int `json:"others"`
	results.Attach
}

// accessMend has how long it takes until all Pods are right again, in milliseconds.
type accessMend struct {
	Pods    int            `json:"pods"`
	What    string         `json:"what"`
	By      string         `json:"by"`
	Took    results.Spread `json:"took"`
	Longest float64        `json:"longest"`
}

func (h hostAccess) tables() string {
	var t strings.Builder
	t.WriteString("| other pods | hostAccess | ADD | ratio | DEL | ratio |\n|---|---|---|---|---|---|\n")
	for _, a := range h.Attach {
		fmt.Fprintf(&t, "| %d | %s | %s | %.2f | %s | %.2f |\n", a.Others, a.Who, a.Add, a.AddRatio, a.Del, a.DelRatio)
	}
	t.WriteString("\n| pods | what happens | who makes it right | median (90th percentile) | longest |\n|---|---|---|---|---|\n")
	for _, m := range h.Mend {
		fmt.Fprintf(&t, "| %d | %s | %s | %s | %.2f |\n", m.Pods, m.What, m.By, m.Took, m.Longest)
	}
	return t.String()
}

// save writes the file beside the one that keeps the other measurements.
func (h hostAccess) save(kept string) error {
	b, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(strings.TrimSuffix(kept, ".json")+"-hostaccess.json", append(b, '\n'), 0o644)
}

// The node has one of these pairs of addresses.
var (
	nodeAddresses  = []string{"192.0.2.10", "2001:db8::10"}
	otherAddresses = []string{"192.0.2.20", "2001:db8::20"}
)

// benchHostAccess measures ADD and DEL on a node without other pods and on one with so many, which all have host access. Then it
// measures how soon all of these are right again.
func benchHostAccess(bin string, pairs, pods int, kept string) (err error) {
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-") // relink-ipam waits for the disk.
	if err != nil {
		return err
	}
	defer func() { err = removeAll(dir, err) }()
	n := &accessNode{bin: bin, leases: dir, store: checkpoint.OpenStore("/run/relink-bench/access-checkpoints")}
	defer n.remove()
	if err := n.setUp(); err != nil {
		return err
	}
	all := hostAccess{System: fmt.Sprintf("Linux %s, %d cores, %s", kernelRelease(), runtime.NumCPU(), runtime.Version())}
	for _, others := range []int{0, pods} {
		if err := n.grow(others); err != nil {
			return err
		}
		rows, err := n.attach(pairs)
		if err != nil {
			return err
		}
		all.Attach = append(all.Attach, rows...)
	}
	if all.Mend, err = n.mend(); err != nil {
		return err
	}
	fmt.Printf("Host access: ADD and DEL as whole processes, %d paired runs; then all pods made right again; milliseconds, median (90th percentile)\n\n", pairs)
	fmt.Println(all.tables())
	return all.save(kept)
}

// accessNode is a node whose pods relink-macvlan attaches.
type accessNode struct {
	bin, leases string
	store       *checkpoint.Store
	// pods are the paths of the pods that stay. made is how many sandboxes there were.
	pods []string
	made int
	host *kernel.Namespace
}

func (n *accessNode) setUp() (err error) {
	if n.host, err = kernel.OpenHost(); err != nil {
		return err
	}
	_ = exec.Command("ip", "link", "del", "lan0").Run() // Another part may have left it.
	lines := "ip link set lo up\nip link add lan0 type veth peer name peer-lan0\nip link set lan0 up\nip link set peer-lan0 up\n"
	return shell("", lines+"ip -batch - <<end\n"+addressLines("add", nodeAddresses)+"end")
}

func addressLines(verb string, addresses []string) string {
	return fmt.Sprintf("addr %s %s/24 dev lan0\naddr %s %s/64 dev lan0 nodad\n", verb, addresses[0], verb, addresses[1])
}

func (n *accessNode) remove() {
	for _, path := range n.pods {
		_ = unmake(path)
	}
	_ = os.RemoveAll(n.store.Dir())
	_ = exec.Command("ip", "link", "del", "lan0").Run()
	if n.host != nil {
		n.host.Close()
	}
}

// sandbox makes a new sandbox. Its kernel looks for no duplicates of IPv6 addresses: each ADD would wait for that, for one to two
// seconds, and the ratios would say nothing.
func (n *accessNode) sandbox() (path string, err error) {
	path = fmt.Sprintf("/run/relink-bench/access-%05d", n.made)
	n.made++
	if err := fresh.Make(path); err != nil {
		return "", err
	}
	entered := fresh.In(path, func() {
		for _, devices := range []string{"all", "default"} {
			err = errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/"+devices+"/accept_dad", []byte("0"), 0))
		}
	})
	return path, errors.Join(entered, err)
}

func unmake(path string) error {
	return errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path))
}

// grow adds pods until there are so many. All have host access.
func (n *accessNode) grow(pods int) error {
	for len(n.pods) < pods {
		path, err := n.sandbox()
		if err != nil {
			return err
		}
		if _, err := n.call("ADD", path, `, "hostAccess": true`); err != nil {
			return err
		}
		n.pods = append(n.pods, path)
	}
	return nil
}

// call runs relink-macvlan with relink-ipam for the sandbox, as a runtime does. keys are more keys of the configuration.
func (n *accessNode) call(command, path, keys string) (time.Duration, error) {
	name := filepath.Base(path)
	cmd := exec.Command(filepath.Join(n.bin, "relink-macvlan"))
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + name, "CNI_IFNAME=eth0", "CNI_NETNS=" + path, "CNI_PATH=" + n.bin,
		checkpoint.DirEnv + "=" + n.store.Dir(), "PATH=" + os.Getenv("PATH"),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME=" + name + ";K8S_POD_UID=0f5b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "bench", "type": "relink-macvlan", "master": "lan0", "ipam": {"type": "relink-ipam", "dataDir": %q, `+
			`"ranges": [[{"subnet": "10.9.0.0/16"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}%s}`, n.leases, keys))
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w: %s", command, name, err, out)
	}
	return took, nil
}

// attach measures ADD and DEL with each setting of hostAccess. In each round each of them has a new sandbox, and they take turns at
// being first.
func (n *accessNode) attach(pairs int) ([]accessAttach, error) {
	settings := []struct {
		name, keys string
		add, del   []time.Duration
	}{
		{name: "none"}, {name: "true", keys: `, "hostAccess": true`},
		{name: "preserveSource", keys: `, "hostAccess": {"preserveSource": true}`}, {name: "masquerade", keys: `, "hostAccess": {"masquerade": true}`},
	}
	for i := range pairs {
		paths, err := n.sandboxes(len(settings))
		if err != nil {
			return nil, err
		}
		for j := range settings {
			s := &settings[(i+j)%len(settings)]
			add, err := n.call("ADD", paths[j], s.keys)
			if err != nil {
				return nil, fmt.Errorf("hostAccess %s: %w", s.name, err)
			}
			del, err := n.call("DEL", paths[j], s.keys)
			if err != nil {
				return nil, fmt.Errorf("hostAccess %s: %w", s.name, err)
			}
			s.add, s.del = append(s.add, add), append(s.del, del)
		}
		for _, path := range paths {
			if err := unmake(path); err != nil {
				return nil, err
			}
		}
	}
	var rows []accessAttach
	for _, s := range settings {
		rows = append(rows, accessAttach{len(n.pods), results.Attach{
			Who: s.name, Add: spread(s.add), AddRatio: ratio(s.add, settings[0].add), Del: spread(s.del), DelRatio: ratio(s.del, settings[0].del),
		}})
	}
	return rows, nil
}

// sandboxes makes new sandboxes. Then it waits: the kernel is still removing those of the round before.
func (n *accessNode) sandboxes(count int) (paths []string, err error) {
	for range count {
		path, err := n.sandbox()
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	time.Sleep(settling)
	return paths, nil
}

const (
	// flushRounds and changeRounds are how often each is measured.
	flushRounds, changeRounds = 25, 5
	// reconcilerIdle is longer than a Reconciler needs to look at all pods twice, and to rest after each look.
	reconcilerIdle = 4 * time.Second
	// reconcilerLate is how long the Reconciler may take.
	reconcilerLate = 30 * time.Second
)

// mend measures how soon all pods are right again after the host has lost its part, and after the node got other addresses.
func (n *accessNode) mend() (rows []accessMend, err error) {
	records, unreadable, err := n.store.List()
	if err != nil || len(unreadable) > 0 || len(records) != len(n.pods) {
		return nil, fmt.Errorf("%d checkpoints of %d pods: %v: %w", len(records), len(n.pods), unreadable, err)
	}
	var asserts, restores []time.Duration
	for range flushRounds {
		for _, way := range []struct {
			run  func([]checkpoint.Record) error
			took *[]time.Duration
		}{{n.assert, &asserts}, {n.restore, &restores}} {
			took, err := n.flushed(records, way.run)
			if err != nil {
				return nil, err
			}
			*way.took = append(*way.took, took)
		}
	}
	row := func(what, by string, took []time.Duration) {
		rows = append(rows, accessMend{Pods: len(n.pods), What: what, By: by, Took: spread(took), Longest: ms(slices.Max(took))})
	}
	row("routes and rules of the host are flushed", "one `Host.Assert`, as in relink-agent", asserts)
	row("routes and rules of the host are flushed", "`relink restore`", restores)
	took, err := n.follow(records)
	if err != nil {
		return nil, err
	}
	const reconciler = "`Reconciler`, as in relink-agent"
	row("the node gets one more address: the pods' routes", reconciler, took.more)
	row("the node gets another address instead: the source of what it sends", reconciler, took.source)
	row("the node gets another address instead: the pods' routes", reconciler, took.other)
	return rows, nil
}

// flushed measures the way after a flush.
func (n *accessNode) flushed(records []checkpoint.Record, way func([]checkpoint.Record) error) (time.Duration, error) {
	flush := ""
	for _, family := range []string{"-4", "-6"} {
		flush += fmt.Sprintf("ip %s rule del pref %d\nip %s route flush table %d\n", family, hostaccess.Priority, family, hostaccess.Table)
	}
	if err := shell("", flush); err != nil {
		return 0, err
	}
	runtime.GC()
	time.Sleep(settling)
	start := time.Now()
	if err := way(records); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return took, n.whole(records)
}

// assert is what relink-agent does: it knows the records.
func (n *accessNode) assert(records []checkpoint.Record) error {
	node, err := hostaccess.ReadNode(n.host)
	if err != nil {
		return err
	}
	return hostends.Host{Store: n.store, Host: n.host, Records: records, Complete: true}.Assert(context.Background(), node).Err()
}

func (n *accessNode) restore([]checkpoint.Record) error {
	if out, err := exec.Command(filepath.Join(n.bin, "relink"), "--checkpoint-dir", n.store.Dir(), "restore").CombinedOutput(); err != nil {
		return fmt.Errorf("relink restore: %w: %s", err, out)
	}
	return nil
}

// whole returns an error if the host lacks something. It counts by ip(8), too: that shares no code with relink.
func (n *accessNode) whole(records []checkpoint.Record) error {
	node, err := hostaccess.ReadNode(n.host)
	if err != nil {
		return err
	}
	lacks := hostends.Host{Store: n.store, Host: n.host, Records: records, Complete: true, DryRun: true}.Assert(context.Background(), node)
	if err := lacks.Err(); err != nil || len(lacks.Plan.Steps()) > 0 {
		return fmt.Errorf("the host is not right: %v: %w", lacks.Plan.Summary(), err)
	}
	for _, family := range []string{"-4", "-6"} {
		out, err := exec.Command("ip", family, "route", "show", "table", fmt.Sprint(hostaccess.Table)).Output()
		if lines := strings.Count(string(out), "\n"); err != nil || lines != len(n.pods) {
			return fmt.Errorf("the host has %d routes of the family %s to %d pods: %w", lines, family, len(n.pods), err)
		}
		out, err = exec.Command("ip", family, "rule", "show", "pref", fmt.Sprint(hostaccess.Priority)).Output()
		if lines := strings.Count(string(out), "\n"); err != nil || lines != 1 {
			return fmt.Errorf("the host has %d rules of the family %s: %w", lines, family, err)
		}
	}
	return nil
}

// following has how soon all pods followed the node's addresses. more and other are for the pods' routes, after the node got one more
// address and another one. source is for what the node sends, after it got another one.
type following struct{ more, source, other []time.Duration }

// follow measures how soon all pods follow the node's addresses after these changed.
func (n *accessNode) follow(records []checkpoint.Record) (took following, err error) {
	done := make(chan time.Time, 100)
	failed := make(chan error, 100)
	k := hostends.NewReconciler(hostends.ReconcilerOptions{
		Store: n.store, Host: n.host, OnDone: func([]string) { done <- time.Now() }, OnError: func(err error) { failed <- err },
	})
	k.SetRecords(records, true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	change := func(lines string, has, lacks []string) (source, pods time.Duration, err error) {
		time.Sleep(reconcilerIdle)
		runtime.GC()
		start := time.Now()
		if err := shell("", "ip -batch - <<end\n"+lines+"end"); err != nil {
			return 0, 0, err
		}
		if source, err = n.sourced(start, has); err != nil {
			return 0, 0, err
		}
		pods, err = n.followed(start, done, failed, has, lacks)
		return source, pods, err
	}
	for range changeRounds {
		both := slices.Concat(nodeAddresses, otherAddresses)
		_, pods, err := change(addressLines("add", otherAddresses), both, nil)
		if err != nil {
			return took, err
		}
		took.more = append(took.more, pods)
		if _, _, err = change(addressLines("del", otherAddresses), nodeAddresses, otherAddresses); err != nil {
			return took, err
		}
		for _, now := range [][2][]string{{nodeAddresses, otherAddresses}, {otherAddresses, nodeAddresses}} {
			source, pods, err := change(addressLines("del", now[0])+addressLines("add", now[1]), now[1], now[0])
			if err != nil {
				return took, err
			}
			took.source, took.other = append(took.source, source), append(took.other, pods)
		}
	}
	return took, nil
}

// sourced waits until each of the host's routes to the pods has one of these addresses as its source.
func (n *accessNode) sourced(start time.Time, has []string) (time.Duration, error) {
	const pause = 5 * time.Millisecond
	for time.Since(start) < reconcilerLate {
		routes, err := n.host.TableRoutes(hostaccess.Table, nil)
		if err != nil {
			return 0, err
		}
		if len(routes) == 2*len(n.pods) && !slices.ContainsFunc(routes, func(r kernel.TableRoute) bool {
			return !slices.Contains(has, r.Source.String())
		}) {
			return time.Since(start), nil
		}
		time.Sleep(pause)
	}
	return 0, fmt.Errorf("the source is not right within %s", reconcilerLate)
}

// followed waits until all pods have routes to the addresses, and to none of the others. The Reconciler says when it has done
// something. Then it rests, so reading the pods costs it nothing. A failed look is no failure here: the Reconciler can meet a change
// that is half made, and tries again.
func (n *accessNode) followed(start time.Time, done <-chan time.Time, failed <-chan error, has, lacks []string) (time.Duration, error) {
	late := time.After(reconcilerLate)
	why := "the Reconciler did nothing"
	for {
		select {
		case at := <-done:
			var err error
			if why, err = n.behind(has, lacks); err != nil || why == "" {
				return at.Sub(start), err
			}
		case err := <-failed:
			why, _, _ = strings.Cut(err.Error(), "\n")
			fmt.Fprintf(os.Stderr, "the Reconciler tries again %s after the change: %s\n", time.Since(start).Round(time.Millisecond), why)
		case <-late:
			return 0, fmt.Errorf("the pods did not follow the node in %s: %s", reconcilerLate, why)
		}
	}
}

// behind says which pod does not have the right routes. It is empty if all have.
func (n *accessNode) behind(has, lacks []string) (string, error) {
	const main = 254 // RT_TABLE_MAIN
	for _, path := range n.pods {
		sandbox, err := kernel.Open(path)
		if err != nil {
			return "", err
		}
		routes, err := sandbox.TableRoutes(main, nil)
		sandbox.Close()
		if err != nil {
			return "", err
		}
		to := map[string]bool{}
		for _, r := range routes {
			to[r.Destination.Addr().String()] = r.Destination.IsSingleIP()
		}
		for _, a := range has {
			if !to[a] {
				return fmt.Sprintf("%s has no route to %s", path, a), nil
			}
		}
		for _, a := range lacks {
			if to[a] {
				return fmt.Sprintf("%s has a route to %s", path, a), nil
			}
		}
	}
	return "", nil
}
