package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// TableRoute is a route of a table, with the index of its device, or of the first of several.
type TableRoute struct {
	netstate.Route
	Index int
}

// TableRoutes returns the routes of a table, of both families. It leaves out what cannot be described: encapsulations and the
// like. If keep is not nil, it keeps only those: a pod can have very many.
func (n *Namespace) TableRoutes(table uint32, keep func(netstate.Route) bool) ([]TableRoute, error) {
	filter := uint32Attr(unix.RTA_TABLE, table)
	return n.tableRoutes(fmt.Sprintf("table %d", table), filter, func(r parsedRoute) bool {
		return r.Table == table && r.isWhole() && (keep == nil || keep(r.Route))
	})
}

// device returns the index of the route's device, or of the first of several.
func (r parsedRoute) device() int {
	if len(r.hops) > 0 {
		return r.hops[0]
	}
	return r.oif
}

// isWhole says that the route goes through one device, and has nothing that cannot be described.
func (r parsedRoute) isWhole() bool { return len(r.undescribable) == 0 && len(r.hops) == 0 }

// tableRoutes lists the routes that the attribute selects, and keeps some.
func (n *Namespace) tableRoutes(subject string, filter *nl.RtAttr, keep func(parsedRoute) bool) ([]TableRoute, error) {
	var routes []TableRoute
	for _, family := range bothFamilies {
		list := newMessage(unix.RTM_GETROUTE, 0, "list the routes of "+subject, ofFamily(family), filter)
		found, err := listOf(n, list, func(payload []byte) (TableRoute, bool, error) {
			r, err := parseRoute(payload)
			return TableRoute{Route: r.Route, Index: r.device()}, err == nil && !r.skip && keep(r), err
		})
		// The kernel has no such table before its first route.
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, err
		}
		routes = append(routes, found...)
	}
	return routes, nil
}

// ReplaceRoutes makes the routes. Each takes the place of the one with the same destination, table and metric. It goes on after
// a failure, and returns all errors.
func (n *Namespace) ReplaceRoutes(routes []TableRoute) error {
	return n.runRoutes(routes, func(r TableRoute) (rtnl.Message, error) {
		return n.addRoute(r.Index, r.Route, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	})
}

// ClaimRoutes makes the routes, and returns ErrExists if one with the same destination, table and metric is there. It makes the others
// all the same.
func (n *Namespace) ClaimRoutes(routes []TableRoute) error {
	return asErrExists(n.runRoutes(routes, func(r TableRoute) (rtnl.Message, error) {
		return n.addRoute(r.Index, r.Route, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	}))
}

// HasRoutes says whether the table has a route of either family. It reads no more than the kernel's first answer.
func (n *Namespace) HasRoutes(table uint32) (found bool, err error) {
	for _, family := range bothFamilies {
		socket, err := n.dial() // A list that is not read to its end leaves a socket of no further use.
		if err != nil {
			return false, err
		}
		list := newMessage(unix.RTM_GETROUTE, unix.NLM_F_DUMP, fmt.Sprintf("look for routes of table %d", table), ofFamily(family), uint32Attr(unix.RTA_TABLE, table))
		err = socket.First(list, func([]byte) { found = true })
		socket.Close()
		if found || err != nil && !errors.Is(err, unix.ENOENT) {
			return found, err
		}
	}
	return false, nil
}

// AddRoutesBeside makes the routes, and leaves those of other devices where they are. It is no error if a route is there.
func (n *Namespace) AddRoutesBeside(routes []TableRoute) error {
	return n.runRoutes(routes, func(r TableRoute) (rtnl.Message, error) {
		m, err := n.addRoute(r.Index, r.Route, unix.NLM_F_CREATE)
		m.MayExist = true
		return m, err
	})
}

// DeleteRoutes deletes exactly these routes. It is no error if one is gone.
func (n *Namespace) DeleteRoutes(routes []TableRoute) error {
	return n.runRoutes(routes, func(r TableRoute) (rtnl.Message, error) { return n.deleteRoute(r.Index, r.Route) })
}

func (n *Namespace) runRoutes(routes []TableRoute, request func(TableRoute) (rtnl.Message, error)) error {
	r := requestsOf(routes, request)
	return r.runOn(n)
}

// DeleteRule deletes the policy rule. It is no error if it is gone.
func (n *Namespace) DeleteRule(r netstate.Rule) error {
	m := addRule(r)
	m.Request.Type, m.Request.Flags = unix.RTM_DELRULE, unix.NLM_F_REQUEST
	m.Action, m.MayExist, m.MayLack = "remove rule "+r.String(), false, true
	return withoutFamily(n.socket.Run(m))
}

// withoutFamily drops the error of a kernel that does not have the family, and so nothing of it.
func withoutFamily(err error) error {
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// DeleteAddress takes the address from the device. It is no error if it is gone.
func (n *Namespace) DeleteAddress(index int, a netstate.Address) error {
	m := deleteAddress(index, a)
	m.MayLack = true
	return withoutFamily(n.socket.Run(m))
}
