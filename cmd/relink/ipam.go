package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAM(open storeOpener, v *verbosity) *cobra.Command {
	var dir leaseDir
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "Show and change the leases of relink-ipam: who holds which address, and why",
	}
	needsVerb(cmd)
	addDataDir(cmd.PersistentFlags(), &dir)
	cmd.AddCommand(newIPAMList(&dir, v), newIPAMShow(&dir, v), newIPAMUsage(&dir, v), newIPAMRelease(&dir, v), newIPAMReserve(&dir, v),
		newIPAMReclaim(&dir, open, v), newIPAMRename(&dir, v), newIPAMResetClock(&dir, v), newIPAMImport(&dir, open, v))
	return cmd
}

// addDataDir adds --data-dir.
func addDataDir(flags *pflag.FlagSet, dir *leaseDir) {
	flags.StringVar((*string)(dir), "data-dir", "",
		"`directory` of the leases, ipam.dataDir of the configuration (default $"+lease.DirEnv+", else "+lease.DefaultDir+")")
}

// leaseDir is the value of --data-dir.
type leaseDir string

// path returns the directory of the leases. One that somebody named has to be there: to
// find nothing in a misspelt one would look as if no address were given. The default
// one is made by the first ADD.
func (d leaseDir) path() (string, error) {
	dir, err := lease.Dir(string(d))
	if err != nil || dir == lease.DefaultDir {
		return dir, err
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s: not a directory", dir)
	}
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	return dir, nil
}

// networks returns the networks that have a store, only is one of them or empty.
func (d leaseDir) networks(only string) ([]string, error) {
	dir, err := d.path()
	if err != nil {
		return nil, err
	}
	all, err := lease.Networks(dir)
	switch {
	case err != nil:
		return nil, err
	case only == "":
		return all, nil
	case slices.Contains(all, only):
		return []string{only}, nil
	case len(all) == 0:
		return nil, fmt.Errorf("invalid --network %q: %s has no leases of any network", only, dir)
	}
	return nil, fmt.Errorf("invalid --network %q: %s has leases of %s", only, dir, strings.Join(all, ", "))
}

// open returns the store of the network, of which nothing may have been given yet.
func (d leaseDir) open(network string) (*lease.Store, error) {
	dir, err := d.path()
	if err != nil {
		return nil, err
	}
	if network == "" {
		return nil, errors.New("--network is missing: name the network")
	}
	if err := attachment.ValidateName(network); err != nil {
		return nil, fmt.Errorf("invalid network %q: %w", network, err)
	}
	store, err := lease.Open(dir, network)
	if err == nil {
		store.OnWait(waitsOn(os.Stderr))
	}
	return store, err
}

// eachStore calls f for the store of each of the networks. One that can't be read does
// not stop the others: it is said, and makes the exit code.
func (d leaseDir) eachStore(networks []string, s *screen, f func(*lease.Store) error) error {
	var result error
	for _, network := range networks {
		store, err := d.open(network)
		if err != nil {
			return err
		}
		if err := f(store); err != nil {
			sayError(s.err, err)
			result = errDiffers
		}
	}
	return result
}

func addNetwork(cmd *cobra.Command, network *string, usage string) {
	cmd.Flags().StringVar(network, "network", "", usage)
}

// podFlags are the values of --pod and --namespace.
type podFlags struct{ name, namespace string }

const defaultNamespace = "default"

func addPod(cmd *cobra.Command, p *podFlags, usage string) {
	cmd.Flags().StringVar(&p.name, "pod", "", usage)
	cmd.Flags().StringVarP(&p.namespace, "namespace", "n", "", "that pod's `namespace` (default \""+defaultNamespace+"\")")
}

// owner returns the pod as an owner, nobody if none is named.
func (p podFlags) owner() (attachment.Owner, error) {
	if p.name == "" {
		if p.namespace != "" {
			return attachment.Owner{}, fmt.Errorf("--namespace %s needs --pod: it says where that pod is", p.namespace)
		}
		return attachment.Owner{}, nil
	}
	if strings.Contains(p.name, "/") {
		return attachment.Owner{}, fmt.Errorf("invalid --pod %q: must be a pod's name without its namespace, which --namespace is for", p.name)
	}
	if err := attachment.ValidateName(p.name); err != nil {
		return attachment.Owner{}, fmt.Errorf("invalid --pod %q: %w", p.name, err)
	}
	if p.namespace == "" {
		p.namespace = defaultNamespace
	}
	if err := attachment.ValidateName(p.namespace); err != nil {
		return attachment.Owner{}, fmt.Errorf("invalid --namespace %q: %w", p.namespace, err)
	}
	return attachment.Pod{Namespace: p.namespace, Name: p.name}.Owner(), nil
}

// parseAddress reads an address that is an argument.
func parseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fmt.Errorf("invalid address %q: must be an IP address such as 10.3.0.5 or fd00:3::5", s)
	}
	return a.Unmap(), nil
}

// differs says an error that is about what is there, not about the command line.
func differs(s *screen, err error) error {
	sayError(s.err, err)
	return errDiffers
}

// timeCell is a time in a table, empty for none.
func timeCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

// since is when the address came to be as it is.
func since(l lease.Lease) time.Time {
	if l.State == lease.Held {
		return l.Newest().Since
	}
	return l.ReleasedAt
}

// why is why the attachment was given the address, or why nobody is.
func why(l lease.Lease) string {
	if l.State == lease.Held {
		return string(l.Newest().Origin)
	}
	return l.Why
}

// ofHolders joins what f says of each holder, or of who held the address last.
func ofHolders(l lease.Lease, f func(lease.Holder) string) string {
	var all []string
	for _, h := range l.Holders {
		all = append(all, f(h))
	}
	if len(all) == 0 {
		return f(l.Last)
	}
	return strings.Join(slices.Compact(all), ",")
}

// storeRemarks says what of a store is not as it looks, and what to do about it.
func storeRemarks(ctx context.Context, store *lease.Store) (all []string, err error) {
	switch err := store.BeingRenamed(ctx); {
	case errors.Is(err, lease.ErrRenaming):
		all = append(all, err.Error())
	case err != nil:
		return nil, err
	}
	remark, err := clockRemark(ctx, store)
	if remark != "" {
		all = append(all, remark)
	}
	return all, err
}

// offIsWrong is how far a store's time may be from the time of day, as a clock is that is set right
// after a boot.
const offIsWrong = time.Hour

// clockRemark says that the time of the store is wrong, empty if it is not.
func clockRemark(ctx context.Context, store *lease.Store) (string, error) {
	ahead, err := store.ClockAhead(ctx)
	if err != nil || ahead.Abs() < offIsWrong {
		return "", err
	}
	if ahead < 0 {
		return fmt.Sprintf("the time of network %s is %s behind the clock, as that was behind at the boot. What is reserved for a time would end too early at the next boot: "+
			"if the clock is right now, relink ipam reset-clock --network %s", store.Network(), (-ahead).Round(time.Minute), store.Network()), nil
	}
	return fmt.Sprintf("the time of network %s is %s ahead of the clock, as that was wrong at a boot, so that what ends by it does not end before its time: "+
		"if the clock is right now, relink ipam reset-clock --network %s", store.Network(), ahead.Round(time.Minute), store.Network()), nil
}
