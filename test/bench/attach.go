package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

// contender is a plugin that is measured. A runtime would start it in the same way, as a whole process.
type contender struct {
	name, plugin, ipam, dataDir string
	// keys are more keys of "ipam".
	keys string
	// network is the name of the network, pool that of the pool of which the addresses come. Without a network it is the plugin's
	// name, without a pool there is a subnet. env has more of the environment.
	network  string
	pool     string
	env      []string
	add, del []time.Duration
}

// benchAttach measures ADD and DEL of all contenders in turn. So other work on the machine slows all of them down
// alike.
func benchAttach(bin string, pairs int) ([]results.Attach, error) {
	contenders := []*contender{
		{name: "macvlan + host-local", plugin: "macvlan", ipam: "host-local"},
		{name: "relink-macvlan + host-local", plugin: "relink-macvlan", ipam: "host-local"},
		{name: "relink-macvlan + relink-ipam", plugin: "relink-macvlan", ipam: "relink-ipam"},
		{name: "the same, and the agent tells the owner", plugin: "relink-macvlan", ipam: "relink-ipam", keys: `, "sticky": "owner"`},
	}
	end, err := serveAgent(agentSocket, serve.Sources{Owners: cached{}})
	if err != nil {
		return nil, err
	}
	defer end()
	if err := (&node{perParent: 1, sandboxes: make([]sandbox, 1)}).parents(); err != nil {
		return nil, err
	}
	const path = "/run/relink-bench/attach"
	if err := fresh.Make(path); err != nil {
		return nil, err
	}
	// The leases are on a disk, because relink-ipam waits for it.
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for i := range pairs {
		for j := range contenders {
			c := contenders[(i+j)%len(contenders)]
			c.dataDir = filepath.Join(dir, c.ipam+fmt.Sprint(len(c.keys)))
			if err := c.round(bin, path); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	var rows []results.Attach
	for _, c := range contenders {
		rows = append(rows, results.Attach{
			Who: c.name, Add: spread(c.add), AddRatio: ratio(c.add, contenders[0].add), Del: spread(c.del), DelRatio: ratio(c.del, contenders[0].del),
		})
	}
	fmt.Printf("ADD and DEL as whole processes, %d paired runs, an empty pool; milliseconds, median (90th percentile)\n\n", pairs)
	fmt.Println(results.Results{Attach: rows}.AttachTable())
	return rows, nil
}

func (c *contender) round(bin, netns string) error {
	add, err := c.call(bin, "ADD", netns)
	if err != nil {
		return err
	}
	del, err := c.call(bin, "DEL", netns)
	c.add, c.del = append(c.add, add), append(c.del, del)
	return err
}

func (c *contender) call(bin, command, netns string) (time.Duration, error) {
	cmd := exec.Command(filepath.Join(bin, c.plugin))
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=bench", "CNI_IFNAME=eth0", "CNI_NETNS=" + netns, "CNI_PATH=" + bin,
		"RELINK_CHECKPOINT_DIR=/run/relink-bench/attach-checkpoints", "PATH=" + os.Getenv("PATH"),
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=0f5b1c2d-3e4f-5a6b-7c8d-9e0f1a2b3c4d",
	}
	cmd.Env = append(cmd.Env, c.env...)
	if c.keys != "" {
		cmd.Env = append(cmd.Env, control.SocketEnv+"="+agentSocket)
	}
	from := fmt.Sprintf(`"subnet": "10.9.0.0/16", "dataDir": %q`, c.dataDir)
	if c.pool != "" {
		from = fmt.Sprintf(`"pool": %q`, c.pool)
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "%s", "type": "%s", "master": "lan0", "ipam": {"type": "%s", %s, "routes": [{"dst": "0.0.0.0/0"}]%s}}`,
		cmp.Or(c.network, c.plugin), c.plugin, c.ipam, from, c.keys))
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return took, nil
}

func quantile(all []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1000
}

func spread(all []time.Duration) results.Spread {
	return results.Spread{Median: quantile(all, 0.5), P90: quantile(all, 0.9)}
}

func ratio(all, of []time.Duration) float64 { return quantile(all, 0.5) / quantile(of, 0.5) }
