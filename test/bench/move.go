package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/traffic"
)

const (
	// uplinkA and uplinkB are the uplinks that pods move between.
	uplinkA, uplinkB = "lan0", "lan2"
	// onWire is the address at the other end of both uplinks.
	onWire = "10.64.255.254"
	// pingInterval and streamInterval are the times between two pings of a pod, and between two writes of its stream.
	pingInterval, streamInterval = 5 * time.Millisecond, 20 * time.Millisecond
	// calm is how long the traffic goes on before and after a move.
	calm = 500 * time.Millisecond
)

// wireNode is a node whose pods can move: it has two uplinks, and a bridge in a namespace of its own joins them.
type wireNode struct {
	*node
	wire string
}

// mover is a way to move all pods from one uplink to the other.
type mover struct {
	name string
	move func(n *wireNode, from, to string) error
}

var movers = []mover{
	{"nothing moves", func(*wireNode, string, string) error { time.Sleep(time.Second); return nil }},
	{"ip -batch", moveByBatch},
	{"relink move", moveByRelink},
}

// benchMove measures for how long pods are off the wire while all of them move to another uplink and back.
func benchMove(bin string, pods int) ([]results.Move, error) {
	n, err := newWireNode(bin, pods)
	if err != nil {
		return nil, err
	}
	defer n.remove()
	var rows []results.Move
	for _, m := range movers {
		row, err := n.measureMove(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		rows = append(rows, row)
	}
	fmt.Printf("%d pods move to another uplink and back under a ping every %s and a TCP stream each; the longest gap of any pod\n\n", pods, pingInterval)
	fmt.Println(results.Results{Move: rows}.MoveTable())
	return rows, nil
}

func newWireNode(bin string, pods int) (*wireNode, error) {
	n := &wireNode{
		node: &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: onOne}, wire: "/run/relink-bench/wire",
	}
	if err := fresh.Make(n.wire); err != nil {
		return nil, err
	}
	if err := n.grow(pods); err != nil {
		return nil, err
	}
	setUp := []string{"ip link add " + uplinkB + " type veth peer name peer-" + uplinkB, "ip link set " + uplinkB + " up"}
	for _, uplink := range []string{uplinkA, uplinkB} {
		setUp = append(setUp, "ip link set peer-"+uplink+" netns "+n.wire)
	}
	bridge := []string{"link set lo up", "link add wire0 type bridge"}
	for _, uplink := range []string{uplinkA, uplinkB} {
		bridge = append(bridge, "link set peer-"+uplink+" up master wire0")
	}
	bridge = append(bridge, "link set wire0 up", "addr add "+onWire+"/10 dev wire0")
	for _, s := range n.sandboxes {
		bridge = append(bridge, fmt.Sprintf("neigh replace %s lladdr %s dev wire0 nud permanent", s.iface.Addresses[0].Prefix.Addr(), s.iface.Link.MAC))
	}
	if err := shell("", strings.Join(setUp, "\n")); err != nil {
		return nil, err
	}
	return n, ipBatch(n.wire, bridge)
}

// shell runs the lines in the namespace at the path.
func shell(path, lines string) error {
	name, args := "sh", []string{"-ec", lines}
	if path != "" {
		name, args = "nsenter", append([]string{"--net=" + path, "sh"}, args...)
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", lines, err, out)
	}
	return nil
}

// ipBatch runs the lines with one ip(8) in the namespace at the path.
func ipBatch(path string, lines []string) error {
	cmd := exec.Command("nsenter", "--net="+path, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch in %s: %w: %s", path, err, out)
	}
	return nil
}

// measureMove moves all pods there and back, under traffic.
func (n *wireNode) measureMove(m mover) (row results.Move, err error) {
	var addresses []netip.Addr
	var paths []string
	for _, s := range n.sandboxes {
		addresses, paths = append(addresses, s.iface.Addresses[0].Prefix.Addr()), append(paths, s.path)
	}
	pings, err := traffic.StartPings(n.wire, addresses, pingInterval)
	if err != nil {
		return row, err
	}
	defer pings.Stop()
	streams, err := traffic.StartStreams(n.wire, netip.MustParseAddr(onWire), paths, streamInterval)
	if err != nil {
		return row, err
	}
	defer streams.Stop()
	time.Sleep(2 * calm)
	start := time.Now()
	time.Sleep(calm)
	for _, way := range [][2]string{{uplinkA, uplinkB}, {uplinkB, uplinkA}} {
		begin := time.Now()
		if err := m.move(n, way[0], way[1]); err != nil {
			return row, err
		}
		row.TookS = max(row.TookS, time.Since(begin).Seconds())
		time.Sleep(calm)
	}
	pinged, pingErr := pings.Since(start)
	streamed, streamErr := streams.Since(start)
	row.Way, row.Pods = m.name, len(n.sandboxes)
	row.PingMS, row.PingMedianMS, row.StreamMS = ms(pinged.Longest()), ms(pinged.Median()), ms(streamed.Longest())
	row.Lost, row.Sent, row.LateMS = pinged.Lost, pinged.Sent*len(n.sandboxes), ms(max(pinged.Late, streamed.Late-streamInterval+pingInterval))
	return row, errors.Join(pingErr, streamErr, n.verify())
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// moveByRelink runs relink move as a whole process.
func moveByRelink(n *wireNode, from, to string) error {
	cmd := exec.Command(filepath.Join(n.bin, "relink"), "--checkpoint-dir", n.store.Dir(), "move", from+"="+to, "-q")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// moveByBatch moves one pod after the other: it builds the new interface beside the old one, and then runs one ip -batch in
// the pod. arp_notify makes the kernel tell the neighbours.
func moveByBatch(n *wireNode, _, to string) error {
	for i, s := range n.sandboxes {
		temporary := fmt.Sprintf("new%d", i)
		build := fmt.Sprintf("ip link add link %s name %s address %s type macvlan mode bridge\nip link set %s netns %s", to, temporary, s.iface.Link.MAC, temporary, s.path)
		if err := shell("", build); err != nil {
			return err
		}
		if err := shell(s.path, "echo 1 >/proc/sys/net/ipv4/conf/"+temporary+"/arp_notify"); err != nil {
			return err
		}
		if err := ipBatch(s.path, []string{
			"link set eth0 down", "link set eth0 name old0", "link set " + temporary + " name eth0", "addr add " + s.iface.Addresses[0].String() + " brd 10.127.255.255 dev eth0",
			"link set eth0 up", "route add default via " + onWire, "link del old0",
		}); err != nil {
			return err
		}
	}
	return nil
}
