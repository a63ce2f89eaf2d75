package hostlocal

import (
	"context"
	"maps"
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
	d, err := readDirectory(ctx, dir)
	if err != nil {
		return importer.ImportReport{}, err
	}
	// Whatever has a file is older than the look at the node.
	return importer.Import(ctx, store, func(n *reclaim.Node, network string) (importer.Source, error) {
		s := d.source(dir)
		if len(o.Pools) > 0 {
			s.Unlisted = d.unlisted(n, network, s.Alias)
		}
		return s, nil
	}, o)
}

// unlisted returns what pods of the network have, and what has no file: another node would give it. Nobody knows what a torn file said.
func (d directory) unlisted(c importer.Caches, network, alias string) []importer.Entry {
	listed := func(a netip.Addr, containerID string) bool {
		return slices.ContainsFunc(d.files, func(f file) bool { return f.address == a && (f.torn != "" || f.containerID == containerID) })
	}
	entries := importer.Unlisted(c, network, listed)
	if alias != "" && alias != network {
		entries = append(entries, importer.Unlisted(c, alias, listed)...)
	}
	return entries
}

// source is what the directory says.
func (d directory) source(dir string) importer.Source {
	s := importer.Source{Plugin: "host-local", Path: dir, Noun: "file", Last: maps.Clone(d.last), Unknown: d.unknown}
	// The network of host-local may have had another name: that of its directory.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		s.Alias = filepath.Base(real)
	}
	for _, f := range d.files {
		s.Entries = append(s.Entries, importer.Entry{Address: f.address, Name: f.address.String(), ContainerID: f.containerID, IfName: f.ifName, Torn: f.torn, Written: f.written})
	}
	return s
}
