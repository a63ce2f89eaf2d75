package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAM() *cobra.Command {
	var dir leaseDir
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Show and change the leases of relink-ipam: who has which address, and why",
		Long: `Show and change the leases of relink-ipam. A lease is the record of one address: who has it,
and why. A held address is in use. A reserved one waits for its pod. A quarantined one was given
up, and rests before another pod gets it.

Exit status: the --help of each verb says it. Without a verb it is 2.`,
		Example: `  relink ipam list                                      # all addresses that are not free
  relink ipam show 10.3.0.5                             # one address, with its history
  relink ipam usage                                     # how full the ranges are
  relink ipam reserve 10.3.0.9 shop/db-0 --network lan  # keep an address for a pod
  relink gc --leases --dry-run                          # find the addresses of pods that are gone`,
	}
	requireVerb(cmd)
	addDataDir(cmd.PersistentFlags(), &dir)
	must(cmd.MarkPersistentFlagDirname("data-dir"))
	addGroup(cmd, "Look:", newIPAMList(&dir), newIPAMShow(&dir), newIPAMUsage(&dir))
	addGroup(cmd, "Pools:", newIPAMPools(), newIPAMBlocks(), newIPAMFence())
	addGroup(cmd, "Change:", newIPAMRelease(&dir), newIPAMReserve(&dir))
	addGroup(cmd, "Networks:", newIPAMImport(&dir), newIPAMResetClock(&dir), newIPAMResetMachine(&dir))
	return cmd
}

// addDataDir adds --data-dir.
func addDataDir(flags *pflag.FlagSet, dir *leaseDir) {
	flags.StringVar((*string)(dir), "data-dir", "",
		"`directory` of the leases, ipam.dataDir of the configuration (default $"+lease.DirEnv+", else "+lease.DefaultDir+")")
}

// addOnlyDataDir adds --data-dir for a verb that looks at all directories without it.
func addOnlyDataDir(flags *pflag.FlagSet, dir *leaseDir) {
	flags.StringVar((*string)(dir), "data-dir", "", "look only at the leases in this `directory` (default all that configurations and checkpoints name)")
}

// leaseDir is the value of --data-dir.
type leaseDir string

// path returns the directory of the leases. A directory that the user named must exist: a misspelt one would look as if
// no address were given. The first ADD makes the default directory.
func (d leaseDir) path() (string, error) {
	dir, err := lease.Dir(string(d))
	if err != nil || dir == lease.DefaultDir {
		return dir, err
	}
	if err := checkDirectory(dir); err != nil {
		return "", fmt.Errorf("data directory: %w", needsRoot(err))
	}
	return dir, nil
}

// needsRoot adds to a permission error what to do about it. Only root may look into the directory of the leases.
func needsRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%w: run relink ipam as root", err)
	}
	return err
}

// networks returns the directory, and the names of the networks that have leases there.
func (d leaseDir) networks() (dir string, names []string, err error) {
	if dir, err = d.path(); err != nil {
		return dir, nil, err
	}
	names, err = lease.Networks(dir)
	return dir, names, needsRoot(err)
}

// leasesIn says which networks have leases in the directory.
func leasesIn(dir string, networks []string) string {
	if len(networks) == 0 {
		return dir + " has no leases of any network"
	}
	return fmt.Sprintf("%s has leases of %s", dir, strings.Join(networks, ", "))
}

// stores opens the stores of all networks, or just that of network, unless it is empty.
func (d leaseDir) stores(network string) (stores []*lease.Store, err error) {
	dir, names, err := d.networks()
	switch {
	case err != nil:
		return nil, err
	case network != "" && !slices.Contains(names, network):
		return nil, fmt.Errorf("--network %s matches nothing: %s", network, leasesIn(dir, names))
	case network != "":
		names = []string{network}
	}
	for _, name := range names {
		store, err := openLeases(dir, name)
		if err != nil {
			return nil, err
		}
		stores = append(stores, store)
	}
	return stores, nil
}

// open returns the store of the network that has to be named. It need not exist yet.
func (d leaseDir) open(network string) (*lease.Store, error) {
	dir, names, err := d.networks()
	if err == nil && network == "" {
		err = fmt.Errorf("--network is missing: give --network NETWORK; %s", leasesIn(dir, names))
	}
	if err != nil {
		return nil, err
	}
	return openLeases(dir, network)
}

// openLeases opens a store. Whoever waits for its lock says so.
func openLeases(dir, network string) (*lease.Store, error) {
	store, err := lease.Open(dir, network)
	if err == nil {
		store.OnWait(printLockWait(os.Stderr))
	}
	return store, err
}

// eachStore calls f for each store. A store that cannot be read does not stop the others: it is
// reported, and decides the exit status.
func eachStore(stores []*lease.Store, s *screen, f func(*lease.Store) error) error {
	var result error
	for _, store := range stores {
		if err := f(store); err != nil {
			printError(s.err, needsRoot(err))
			result = errDiffers
		}
	}
	return result
}

// parseAddress parses an argument as an address.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fmt.Errorf("invalid address %q: give an IP address such as 10.3.0.5 or fd00:3::5", s)
	}
	return a.Unmap(), nil
}

// reportDifference reports an error about the node, not about the command line. Of nil there is nothing to report.
func reportDifference(s *screen, err error) error {
	if err == nil {
		return nil
	}
	printError(s.err, err)
	return errDiffers
}

// timeCell is a time in a table, or empty for the zero time.
func timeCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}
