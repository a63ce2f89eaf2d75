package hostlocal

import (
	"context"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
)

// Import takes over the addresses that host-local has given, as importer.Import does. dir is host-local's directory of the network. It
// stays as it is, and is locked against host-local meanwhile. lease.ErrBusy: host-local or others had locked the
// directory or the store for as long as the caller waited.
func Import(ctx context.Context, store *lease.Store, dir string, o importer.Options) (importer.ImportReport, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return importer.ImportReport{}, err
	}
	unlock, err := lock(ctx, dir, flock.DefaultTimeout)
	if err != nil {
		return importer.ImportReport{}, err
	}
	defer unlock()
	s, err := readDirectory(ctx, dir)
	if err != nil {
		return importer.ImportReport{}, err
	}
	// Whatever has a file is older than the look at the node.
	return importer.Import(ctx, store, func(n *reclaim.Node, network string) (importer.Source, error) {
		if len(o.Pools) > 0 {
			s.Unlisted = unlisted(s, n, network)
		}
		return s, nil
	}, o)
}

// unlisted returns what pods of the network have, and what has no file: another node would give it. Nobody knows what a torn file said.
func unlisted(s importer.Source, c importer.Caches, network string) []importer.Entry {
	listed := func(a netip.Addr, containerID string) bool {
		return slices.ContainsFunc(s.Entries, func(e importer.Entry) bool { return e.Address == a && (e.Torn != "" || e.ContainerID == containerID) })
	}
	entries := importer.Unlisted(c, network, listed)
	if s.Alias != "" && s.Alias != network {
		entries = append(entries, importer.Unlisted(c, s.Alias, listed)...)
	}
	return entries
}
