package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	poolkeeper "github.com/relink-cni/relink/pkg/pool/node"
)

// network is the network of all pods.
const network = "bench"

// poolNode is a node: its store, and what its agent does with pools.
type poolNode struct {
	name, dir, socket string
	keeper            *poolkeeper.Controller
	stop              context.CancelFunc
	running           sync.WaitGroup
}

// startNode starts a node's agent, with the store in the directory.
func (s *server) startNode(name, dir string) (*poolNode, error) {
	n := &poolNode{name: name, dir: filepath.Join(dir, name), socket: filepath.Join(dir, name+".sock")}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	pools, err := s.asNode(name)
	if err != nil {
		return nil, err
	}
	log := s.log.With("node", name)
	n.keeper = poolkeeper.New(poolkeeper.Config{
		API: pools, Node: name, Dir: n.dir, Log: log,
		Watch: func(ctx context.Context, h pool.Handler) { pools.Watch(ctx, name, log, h) },
	})
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.running.Go(func() { n.keeper.Run(ctx) })
	return n, nil
}

// serve makes the agent answer plugins.
func (n *poolNode) serve() error {
	listener, err := serve.Listen(n.socket)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	before := n.stop
	n.stop = func() { stop(); before() }
	n.running.Go(func() { _ = serve.Serve(ctx, listener, serve.Handler(idle{}, serve.Sources{Pools: n.keeper}, nil)) })
	return nil
}

// env names the node's store and agent.
func (n *poolNode) env() []string {
	return []string{lease.DirEnv + "=" + n.dir, control.SocketEnv + "=" + n.socket}
}

func (n *poolNode) end() {
	n.stop()
	n.running.Wait()
}

// startNodes starts nodes whose agents answer plugins. They have seen the API for long enough to take something new.
func (s *server) startNodes(prefix, dir string, count int) (all []*poolNode, err error) {
	for i := range count {
		n, err := s.startNode(fmt.Sprintf("%s%d", prefix, i), dir)
		if err != nil {
			return all, err
		}
		all = append(all, n)
		if err := n.serve(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// hesitation is how long an agent has seen the API before it takes anything new, and a little more.
const hesitation = 5500 * time.Millisecond

// settle makes the agents ask the API for something, and waits until they may take addresses.
func settle(all []*poolNode) error {
	var mu sync.Mutex
	var errs []error
	inparallel.Do(8, len(all), func(i int) {
		if _, err := all[i].keeper.API.Pools(context.Background()); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	})
	time.Sleep(hesitation)
	return errors.Join(errs...)
}

func endAll(all []*poolNode) {
	for _, n := range all {
		n.stop()
	}
	for _, n := range all {
		n.end()
	}
}

// ipamCall is an ADD of an IPAM plugin, as a process.
type ipamCall struct {
	bin, plugin string
	// keys are those of "ipam" but the type.
	keys string
	env  []string
	// container is the ID of the pod's sandbox.
	container string
}

// errAgain says that the plugin has asked the runtime to try again.
var errAgain = errors.New("try again")

// add makes one try.
func (c ipamCall) add() (netip.Addr, error) {
	cmd := exec.Command(filepath.Join(c.bin, c.plugin))
	cmd.Env = append([]string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + c.container, "CNI_IFNAME=eth0", "CNI_NETNS=" + benchNetns, "CNI_PATH=" + c.bin,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + c.container,
	}, c.env...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "%s", "type": "macvlan", "ipam": {"type": "%s", %s}}`, network, c.plugin, c.keys))
	out, err := cmd.Output()
	if err != nil {
		var said types.Error
		if json.Unmarshal(out, &said) == nil && said.Code == types.ErrTryAgainLater {
			return netip.Addr{}, fmt.Errorf("%w: %s", errAgain, said.Msg)
		}
		return netip.Addr{}, fmt.Errorf("%s ADD: %w: %s", c.plugin, err, out)
	}
	var result struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		return netip.Addr{}, fmt.Errorf("%s ADD: %s: %w", c.plugin, out, err)
	}
	return result.IPs[0].Address.Addr(), nil
}

// burst is pods that start at once on several nodes.
type burst struct {
	nodes, podsOfNode int
	// atOnce is how many pods a node starts at a time.
	atOnce int
	// add is one try of an ADD. pause is how long the runtime waits before the next one.
	add   func(node, pod int) (netip.Addr, error)
	pause time.Duration
	// always says that the runtime tries again after any error.
	always bool
}

// outcome is what has become of a burst.
type outcome struct {
	took time.Duration
	// each are the times from a pod's first ADD to its address.
	each []time.Duration
	adds int
	// given has the node of each address.
	given map[netip.Addr]int
}

// burstLimit is how long pods try.
const burstLimit = 20 * time.Minute

// run starts all pods. It returns an error if one has no address, or if two have the same one.
func (b burst) run() (o outcome, err error) {
	var mu sync.Mutex
	o.given = map[netip.Addr]int{}
	start := time.Now()
	inparallel.Do(b.nodes*b.atOnce, b.nodes*b.podsOfNode, func(i int) {
		node, begun := i%b.nodes, time.Now()
		a, tries, wrong := b.pod(node, i/b.nodes, start)
		mu.Lock()
		defer mu.Unlock()
		o.adds += tries
		if _, twice := o.given[a]; twice && wrong == nil {
			wrong = fmt.Errorf("two pods have %s", a)
		}
		if wrong != nil {
			err = wrong
			return
		}
		o.given[a] = node
		o.each = append(o.each, time.Since(begun))
	})
	o.took = time.Since(start)
	return o, err
}

// pod starts a pod, as a runtime does.
func (b burst) pod(node, pod int, start time.Time) (a netip.Addr, tries int, err error) {
	for time.Since(start) < burstLimit {
		tries++
		if a, err = b.add(node, pod); err == nil || !b.always && !errors.Is(err, errAgain) {
			return a, tries, err
		}
		time.Sleep(b.pause)
	}
	return a, tries, err
}
