package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAM() *cobra.Command {
	var dir leaseDir
	cmd := newVerb("ipam", nil)
	cli.RequireVerb(cmd)
	cmd.PersistentFlags().StringVar((*string)(&dir), "data-dir", "",
		"`directory` of the leases, ipam.dataDir of the configuration (default $"+lease.DirEnv+", else "+lease.DefaultDir+")")
	cli.Must(cmd.MarkPersistentFlagDirname("data-dir"))
	cli.AddGroup(cmd, "Look:", newIPAMList(&dir), newIPAMShow(&dir), newIPAMUsage(&dir))
	cli.AddGroup(cmd, "Change:", newIPAMRelease(&dir), newIPAMReserve(&dir))
	cli.AddGroup(cmd, "Networks:", newIPAMImport(&dir), newIPAMResetClock(&dir), newIPAMResetMachine(&dir))
	return cmd
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
func eachStore(stores []*lease.Store, s *cli.Screen, f func(*lease.Store) error) error {
	var result error
	for _, store := range stores {
		if err := f(store); err != nil {
			cli.PrintError(s.Err, needsRoot(err))
			result = cli.ErrDiffers
		}
	}
	return result
}
