package hostlocal

import (
	"context"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/intake"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
)

// Import takes over the addresses that host-local has given, as intake.Import does. dir is host-local's directory of the network. It
// stays as it is, and is locked against host-local meanwhile. lease.ErrBusy: host-local or others had locked the
// directory or the store for as long as the caller waited.
func Import(ctx context.Context, store *lease.Store, dir string, o intake.Options) (intake.Report, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return intake.Report{}, err
	}
	unlock, err := lock(ctx, dir, flock.Patience)
	if err != nil {
		return intake.Report{}, err
	}
	defer unlock()
	d, err := readDirectory(ctx, dir)
	if err != nil {
		return intake.Report{}, err
	}
	// Whatever has a file is older than the look at the node.
	return intake.Import(ctx, store, func(n *reclaim.Node) (intake.Source, error) {
		s := d.source(dir)
		if len(o.Pools) > 0 {
			s.Unlisted = d.unlisted(n, store.Network(), s.Alias)
		}
		return s, nil
	}, o)
}

// unlisted returns what pods of the network have, and what has no file: another node would give it. Nobody knows what a torn file said.
func (d directory) unlisted(c intake.Caches, network, alias string) []intake.Entry {
	has := func(a netip.Addr, containerID string) bool {
		return slices.ContainsFunc(d.given, func(f file) bool { return f.address == a && (f.torn != "" || f.containerID == containerID) })
	}
	all := intake.Unlisted(c, network, has)
	if alias != "" && alias != network {
		all = append(all, intake.Unlisted(c, alias, has)...)
	}
	return all
}

// source is what the directory says.
func (d directory) source(dir string) intake.Source {
	s := intake.Source{Plugin: "host-local", Path: dir, Noun: "file", Last: maps.Clone(d.last), Unknown: d.unknown}
	// The network of host-local may have had another name: that of its directory.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		s.Alias = filepath.Base(real)
	}
	for _, f := range d.given {
		s.Entries = append(s.Entries, intake.Entry{Address: f.address, Name: f.address.String(), ContainerID: f.containerID, IfName: f.ifName, Torn: f.torn, Written: f.written})
	}
	return s
}
