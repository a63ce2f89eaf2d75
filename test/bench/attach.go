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

	"github.com/vishvananda/netlink"

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
	// addCPU and delCPU are the processor times of the same runs, with those of the IPAM plugin.
	addCPU, delCPU []time.Duration
}

// benchAttach measures ADD and DEL of all contenders in turn. So other work on the machine slows all of them down
// alike.
//
// Then it measures the first and the last but one beside so many links of others: the processor time, as relink-ipam waits for the disk.
func benchAttach(bin string, pairs int) (rows, crowded []results.Attach, err error) {
	contenders := []*contender{
		{name: "macvlan + host-local", plugin: "macvlan", ipam: "host-local"},
		{name: "relink-macvlan + host-local", plugin: "relink-macvlan", ipam: "host-local"},
		{name: "relink-macvlan + relink-ipam", plugin: "relink-macvlan", ipam: "relink-ipam"},
		{name: "the same, and the agent tells the owner", plugin: "relink-macvlan", ipam: "relink-ipam", keys: `, "sticky": "owner"`},
	}
	end, err := serveAgent(agentSocket, serve.Sources{Owners: cached{}})
	if err != nil {
		return nil, nil, err
	}
	defer end()
	if err := (&node{perParent: 1, sandboxes: make([]sandbox, 1)}).parents(); err != nil {
		return nil, nil, err
	}
	const path = "/run/relink-bench/attach"
	if err := fresh.Make(path); err != nil {
		return nil, nil, err
	}
	// The leases are on a disk, because relink-ipam waits for it.
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	run := func(contenders []*contender) error {
		for i := range pairs {
			for j := range contenders {
				c := contenders[(i+j)%len(contenders)]
				c.dataDir = filepath.Join(dir, c.ipam+fmt.Sprint(len(c.keys)))
				if err := c.round(bin, path); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
		return nil
	}
	if err := run(contenders); err != nil {
		return nil, nil, err
	}
	first := contenders[0]
	rows = attachRows(contenders, func(c *contender) (add, del []time.Duration) { return c.add, c.del })
	fmt.Printf("ADD and DEL as whole processes, %d paired runs, an empty pool; milliseconds, median (90th percentile)\n\n", pairs)
	fmt.Println(results.Results{Attach: rows}.AttachTable())

	err = addForeignLinks(foreignLinks)
	defer func() { _ = exec.Command("ip", "link", "delete", "group", fmt.Sprint(foreignGroup)).Run() }()
	if err != nil {
		return nil, nil, err
	}
	contenders = []*contender{{name: first.name, plugin: first.plugin, ipam: first.ipam}, {name: contenders[2].name, plugin: contenders[2].plugin, ipam: contenders[2].ipam}}
	if err := run(contenders); err != nil {
		return nil, nil, err
	}
	crowded = attachRows(contenders, func(c *contender) (add, del []time.Duration) { return c.addCPU, c.delCPU })
	fmt.Printf("Processor time of ADD and DEL beside %d links of others, %d paired runs; milliseconds, median (90th percentile)\n\n", foreignLinks, pairs)
	fmt.Println(results.Results{AttachCrowded: crowded}.AttachCrowdedTable())
	return rows, crowded, nil
}

// attachRows returns a row for each contender, beside the first.
func attachRows(contenders []*contender, times func(*contender) (add, del []time.Duration)) (rows []results.Attach) {
	firstAdd, firstDel := times(contenders[0])
	for _, c := range contenders {
		add, del := times(c)
		rows = append(rows, results.Attach{Who: c.name, Add: spread(add), AddRatio: ratio(add, firstAdd), Del: spread(del), DelRatio: ratio(del, firstDel)})
	}
	return rows
}

// foreignLinks is how many links of others the node has, as the ends of other pods' pairs are.
const foreignLinks = 1000

// foreignGroup is the group of links that the foreign ones are in.
const foreignGroup = 7

// addForeignLinks makes pairs whose ends are both in the host.
func addForeignLinks(links int) error {
	for i := range links / 2 {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Group = fmt.Sprintf("foreign%d", i), foreignGroup
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("other%d", i)}); err != nil {
			return err
		}
	}
	return nil
}

func (c *contender) round(bin, netns string) error {
	add, addCPU, err := c.call(bin, "ADD", netns)
	if err != nil {
		return err
	}
	del, delCPU, err := c.call(bin, "DEL", netns)
	c.add, c.del = append(c.add, add), append(c.del, del)
	c.addCPU, c.delCPU = append(c.addCPU, addCPU), append(c.delCPU, delCPU)
	return err
}

func (c *contender) call(bin, command, netns string) (took, cpu time.Duration, err error) {
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
	took = time.Since(start)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func quantile(all []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[int(q*float64(len(sorted)-1))].Microseconds()) / 1000
}

func spread(all []time.Duration) results.Spread {
	return results.Spread{Median: quantile(all, 0.5), P90: quantile(all, 0.9)}
}

func ratio(all, of []time.Duration) float64 { return quantile(all, 0.5) / quantile(of, 0.5) }
