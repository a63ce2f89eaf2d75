package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/validate"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/hostlocal"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/whereabouts"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMImport(dir *leaseDir) *cobra.Command {
	var network string
	var retain time.Duration
	var call importCall
	cmd := newVerb("ipam-import", func(cmd *cobra.Command, args []string) error {
		if err := call.check(retain); err != nil {
			return err
		}
		checkpoints, err := openStore(cmd)
		if err != nil {
			return err
		}
		call.AllProcesses = allProcesses()
		if err := audit.AddCheckpoints(&call.Sources, checkpoints); err != nil {
			return err
		}
		store, err := dir.open(network)
		if err != nil {
			return err
		}
		call.path, call.Policy.Retain, call.Agent = args[0], lease.Duration(retain), control.Client{}
		call.Policy.Sticky = call.sticky.Name != ""
		if call.sticky.Name == stickyOwner {
			call.Owners = control.Client{}
		}
		return call.run(cmd.Context(), store, screenOf(cmd))
	})
	cmd.Args = cli.Takes(1, 1)
	cmd.ValidArgsFunction = cli.CompleteArgs(func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if call.plugin.Name == whereaboutsPlugin {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	addNetwork(cmd, dir, &network, "the `network` of the addresses: the name in relink-ipam's configuration, or its ipam.store")
	cmd.Flags().StringVar(&call.Network, "name", "", "the `name` of the network in its configuration, if that names another store (default --network)")
	addCacheDir(cmd, &call.CacheDir)
	flags := cmd.Flags()
	cli.AddChoice(cmd, &call.plugin, "from", "", "plugin", "the `plugin` that has given them: host-local or whereabouts (default host-local)", hostLocalPlugin, whereaboutsPlugin)
	flags.StringArrayVar(&call.Pools, "pool", nil, "the address `pool` of the network, once for each pool that ipam.pool names, in that order")
	cli.Must(cmd.RegisterFlagCompletionFunc("pool", cobra.NoFileCompletions))
	cli.AddChoice(cmd, &call.sticky, "sticky", "", "whom", `keep imported addresses, as "sticky" does, if the pod is known: --sticky=owner for the pod's owner`, stickyPod, stickyOwner)
	flags.Lookup("sticky").NoOptDefVal = stickyPod
	cli.AddDuration(cmd, &retain, true, "retain", "how long to keep them, such as 72h (default until they are released)")
	flags.BoolVar(&call.DryRun, "dry-run", false, "print what would be taken over, and change nothing")
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

// The values of --from.
const (
	hostLocalPlugin   = "host-local"
	whereaboutsPlugin = "whereabouts"
)

// The values of --sticky, as those of the key in the network's configuration.
const (
	stickyPod   = "pod"
	stickyOwner = "owner"
)

// importCall is an import.
type importCall struct {
	importer.Options
	// plugin is empty for host-local, and sticky for no owner.
	plugin, sticky cli.ChoiceFlag
	path           string
}

// check refuses flags that do not go together.
func (t importCall) check(retain time.Duration) error {
	switch {
	case retain != 0 && t.sticky.Name == "":
		return fmt.Errorf("--retain %s needs --sticky: it says how long an address is kept for its pod", retain)
	case t.plugin.Name == whereaboutsPlugin && len(t.Pools) == 0:
		return errors.New("--from whereabouts needs --pool: name the pool that has the addresses from now on")
	case slices.Contains(t.Pools, ""):
		return errors.New(`invalid --pool "": it must be the name of an AddressPool`)
	}
	return nil
}

func (t importCall) report(ctx context.Context, store *lease.Store) (importer.ImportReport, error) {
	if t.plugin.Name != whereaboutsPlugin {
		return hostlocal.Import(ctx, store, t.path, t.Options)
	}
	pools, err := readIPPools(t.path, os.Stdin)
	if err != nil {
		return importer.ImportReport{}, err
	}
	return whereabouts.Import(ctx, store, pools, t.path, t.Options)
}

// maxIPPools bounds what is read of a file: 100,000 allocations take 20 MB.
const maxIPPools = 256 << 20

// readIPPools reads what kubectl prints. - is the standard input.
func readIPPools(path string, stdin io.Reader) (pools whereabouts.Pools, err error) {
	r := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return pools, err
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, maxIPPools+1))
	if err == nil && len(b) > maxIPPools {
		err = fmt.Errorf("it has more than %d bytes", maxIPPools)
	} else if err == nil && !json.Valid(b) {
		if b, err = validate.ToJSON(b); err != nil {
			err = fmt.Errorf("%w: make it anew by %s", err, whereabouts.PrintCommand)
		}
	}
	if err == nil {
		pools, err = whereabouts.Read(b)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return pools, err
}

func (t importCall) run(ctx context.Context, store *lease.Store, s *cli.Screen) error {
	report, err := t.report(ctx, store)
	if err != nil {
		return err
	}
	first := "FILE"
	if t.plugin.Name == whereaboutsPlugin {
		first = "ADDRESS"
	}
	r := outcomes{
		report: report, complete: report.Complete(), dryRun: report.DryRun,
		header: first + " | POD | SANDBOX:1 | INTERFACE:2",
	}
	unnamed, count := 0, map[importer.EntryState]int{}
	for _, f := range report.Files {
		r.list = append(r.list, importedOutcome(f))
		count[f.State]++
		if lacksPod(f) {
			unnamed++
		}
	}
	r.summary = importSummary(report, count)
	err = r.present(s, nil)
	if report.Closed != "" {
		s.Warnf("without --dry-run, nothing would be taken over: %s", report.Closed)
	}
	var advice []string
	if unnamed > 0 {
		advice = append(advice, fmt.Sprintf("%d without a known pod: no CNI cache names the pod, so no address stays reserved for it", unnamed))
	}
	if count[importer.NoSandbox] > 0 {
		advice = append(advice, "to give up what has no live sandbox: relink gc --leases --network "+report.Network)
	}
	if !s.IsData() {
		s.InfoLines(advice)
	}
	printProblems(s, report.Problems)
	for _, failed := range report.Failed {
		s.Warnf("%s", failed)
	}
	return err
}

// importedOutcome is what became of an entry.
func importedOutcome(f importer.EntryOutcome) outcome {
	return outcome{
		name: entryCell(f), cells: []string{entryCell(f), ownerName(f.Owner), selection.ShortID(f.Attachment.ContainerID), f.Attachment.IfName},
		state: string(f.State), reason: f.Reason, detail: f.Reason, differs: !f.State.IsSettled(),
	}
}

// withSandbox are the states of entries whose sandbox may exist. That of a lease which was there before may exist if no reason is given.
var withSandbox = []importer.EntryState{importer.Imported, importer.ToImport, importer.Completed, importer.ToComplete}

// lacksPod reports whether the pod of an address is unknown although its sandbox may exist.
func lacksPod(f importer.EntryOutcome) bool {
	return f.Owner == (attachment.Owner{}) && (slices.Contains(withSandbox, f.State) || f.State == importer.Present && f.Reason == "")
}

// entryCell names an entry, or its address. A CNI cache that cannot be read has neither. The name of a file can have any character but a
// slash.
func entryCell(f importer.EntryOutcome) string {
	if f.File == "" && f.Address.IsValid() {
		return f.Address.String()
	}
	if quoted := strconv.Quote(f.File); quoted != `"`+f.File+`"` {
		return quoted
	}
	return f.File
}

// importSummary counts the entries by state, and those that are not for this node and network.
func importSummary(report importer.ImportReport, count map[importer.EntryState]int) string {
	parts := countStates([]importer.EntryState{
		importer.Imported, importer.ToImport, importer.Completed, importer.ToComplete, importer.Present, importer.NoSandbox,
		importer.OutOfDate, importer.Torn, importer.Conflict, importer.Refused, importer.Missing, importer.Ignored,
	}, func(state importer.EntryState) int { return count[state] })
	if len(parts) == 0 {
		parts = append(parts, "no address of this node is given in "+report.Dir)
	}
	if report.OnOtherNodes > 0 {
		parts = append(parts, fmt.Sprintf("%d on other nodes", report.OnOtherNodes))
	}
	if report.OtherNetworks > 0 {
		parts = append(parts, fmt.Sprintf("%d of other networks", report.OtherNetworks))
	}
	return strings.Join(parts, ", ")
}
