package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

// keeper is an IPAM plugin that already holds a number of addresses. It is measured as a whole process, as an interface
// plugin starts it.
type keeper struct {
	plugin   string
	dir      string
	add, del []time.Duration
	// program is a copy of the plugin. install renews it.
	program string
}

// benchIPAM measures ADD and DEL of relink-ipam and host-local in turn. It also measures relink-ipam in turn with a
// relink-ipam that holds no address. So other work on the machine slows both down alike. The leases are on a disk and
// not in memory, because relink-ipam waits for the disk.
func benchIPAM(bin string, held []int, pairs int) ([]results.IPAM, error) {
	// The namespace is in the directory that disappears with the mount namespace. relink-ipam reads its identity.
	// host-local does not look at it.
	if err := fresh.Make(benchNetns); err != nil {
		return nil, err
	}
	defer func() { _ = unix.Unmount(benchNetns, unix.MNT_DETACH) }()
	var rows []results.IPAM
	for _, n := range held {
		dir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
		if err != nil {
			return nil, err
		}
		theirs, ours, growth, err := benchHeld(bin, dir, n, pairs)
		if err := removeAll(dir, err); err != nil {
			return nil, fmt.Errorf("%d addresses held: %w", n, err)
		}
		rows = append(rows, results.IPAM{
			Held: n, TheirAdd: spread(theirs.add), Add: spread(ours.add), AddRatio: ratio(ours.add, theirs.add), Growth: growth,
			TheirDel: spread(theirs.del), Del: spread(ours.del), DelRatio: ratio(ours.del, theirs.del),
		})
	}
	fmt.Printf("ADD and DEL of IPAM plugins as whole processes, %d paired runs (20 from 10,000 on), leases on disk; milliseconds, median (90th percentile)\n\n", pairs)
	fmt.Println(results.Results{IPAM: rows}.IPAMTable())
	return rows, nil
}

// benchNetns is the network namespace that all calls name.
const benchNetns = "/run/relink-bench/netns"

// removeAll removes dir. It returns err, or if err is nil, the error of the removal.
func removeAll(dir string, err error) error {
	if removed := os.RemoveAll(dir); err == nil {
		return removed
	}
	return err
}

// benchHeld measures host-local and relink-ipam while each holds n addresses. growth is the ratio of relink-ipam's ADD
// at that time to its ADD while it holds none.
func benchHeld(bin, dir string, n, pairs int) (theirs, ours *keeper, growth float64, err error) {
	theirs = &keeper{plugin: "host-local", dir: filepath.Join(dir, "host-local")}
	ours = &keeper{plugin: "relink-ipam", dir: filepath.Join(dir, "relink")}
	if err := fill(filepath.Join(theirs.dir, "bench"), n); err != nil {
		return nil, nil, 0, err
	}
	if n > 0 {
		took, err := takeOver(bin, theirs.dir, ours.dir)
		if err != nil {
			return nil, nil, 0, err
		}
		fmt.Fprintf(os.Stderr, "relink ipam import of %d addresses: %s\n", n, took.Round(time.Millisecond))
	}
	few := pairs
	if n >= 10000 {
		few = min(pairs, 20)
	}
	if err := inTurn(bin, few, theirs, ours); err != nil {
		return nil, nil, 0, err
	}
	full, empty := &keeper{plugin: ours.plugin, dir: ours.dir}, &keeper{plugin: ours.plugin, dir: filepath.Join(dir, "empty")}
	err = inTurn(bin, pairs, full, empty)
	return theirs, ours, ratio(full.add, empty.add), err
}

// inTurn runs pairs rounds of both. They take turns at being first.
func inTurn(bin string, pairs int, one, other *keeper) error {
	const rounds = 20
	for i := range pairs {
		order := []*keeper{one, other}
		for j := range order {
			if i%rounds == 0 {
				if err := order[j].install(bin); err != nil {
					return err
				}
			}
			if err := order[(i+j)%2].round(bin, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill writes a directory like that of a host-local with n addresses.
func fill(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	a := netip.MustParseAddr("10.9.0.2")
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, a.String()), fmt.Appendf(nil, "%064x\r\neth0", i), 0o600); err != nil {
			return err
		}
		a = a.Next()
	}
	if n == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(a.Prev().String()), 0o600)
}

// takeOver imports host-local's addresses into relink-ipam's store, and returns how long that took.
func takeOver(bin, from, to string) (time.Duration, error) {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, err
	}
	start := time.Now()
	out, err := exec.Command(filepath.Join(bin, "relink"), "ipam", "import", filepath.Join(from, "bench"), "--network", "bench", "--data-dir", to).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("import: %w: %s", err, out)
	}
	return time.Since(start), nil
}

// install makes a new copy of the plugin. A tenth of a process's time depends on where in memory the kernel keeps the
// file: two copies of the same bytes were seen to differ by that much.
func (k *keeper) install(bin string) error {
	k.program = filepath.Join(filepath.Dir(k.dir), "bin-"+filepath.Base(k.dir), k.plugin)
	if err := os.RemoveAll(filepath.Dir(k.program)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.program), 0o755); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(bin, k.plugin))
	if err != nil {
		return err
	}
	return os.WriteFile(k.program, b, 0o755)
}

// round runs an ADD and its DEL.
func (k *keeper) round(bin string, i int) error {
	add, err := k.call(bin, "ADD", i)
	if err != nil {
		return err
	}
	del, err := k.call(bin, "DEL", i)
	k.add, k.del = append(k.add, add), append(k.del, del)
	return err
}

func (k *keeper) call(bin, command string, i int) (time.Duration, error) {
	cmd := exec.Command(k.program)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, fmt.Sprintf("CNI_CONTAINERID=bench%d", i), "CNI_IFNAME=eth0", "CNI_NETNS=" + benchNetns, "CNI_PATH=" + bin,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion": "1.0.0", "name": "bench", "type": "macvlan", "ipam": {"type": "%s", "subnet": "10.9.0.0/16", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}]}}`,
		k.plugin, k.dir))
	start := time.Now()
	out, err := cmd.Output()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w: %s", k.plugin, command, err, out)
	}
	return took, nil
}
