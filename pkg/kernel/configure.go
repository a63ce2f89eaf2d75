package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ConfigureOptions are the options of Configure.
type ConfigureOptions struct {
	// Known says that the IPv6 addresses were this interface's before, so
	// that they are usable at once, without duplicate address detection.
	Known bool
}

// Build makes the interface as it is described: Create and Configure in one, and in
// a single datagram where the kernel takes it. parentAt, parentIndex and the errors
// are those of Create.
func Build(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface, opts ConfigureOptions) error {
	if parentAt != sandbox && createsInTarget() && want.Link.Index != 0 && want.Link.Up && len(want.Settings) == 0 {
		created, err := buildAtOnce(parentAt, sandbox, parentIndex, want, opts)
		if created || (!errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY)) {
			return err
		}
		// The name or the index is taken, which is Create's to tell apart.
	}
	index, err := Create(parentAt, sandbox, parentIndex, want.Link)
	if err != nil {
		return err
	}
	return sandbox.Configure(index, want, opts)
}

// buildAtOnce sends all that makes the interface in one datagram. It says whether
// there is an interface now, whatever else failed.
func buildAtOnce(parentAt, sandbox *Namespace, parentIndex int, want netstate.Interface, opts ConfigureOptions) (created bool, err error) {
	create, err := newLink(want.Link, parentIndex, want.Link.Index, want.Link.Name, unix.IFF_UP)
	if err != nil {
		return false, err
	}
	if err := linkElsewhere(create, parentAt, sandbox); err != nil {
		return false, err
	}
	batch := []message{create}
	if passthru(want.Link) {
		up, err := setUp(want.Link.Index, want.Link)
		if err != nil {
			return false, err
		}
		batch = append(batch, up)
	}
	for _, a := range want.Addresses {
		batch = append(batch, addAddress(want.Link.Index, a, opts.Known))
	}
	for _, r := range want.Routes {
		batch = append(batch, addRoute(want.Link.Index, r, false))
	}
	outcomes := sandbox.conn.runEach(batch...)
	if outcomes[0] != nil {
		return false, outcomes[0]
	}
	return true, errors.Join(outcomes...)
}

// Configure gives the freshly created interface of that index its settings and
// addresses, sets it up, and gives it its routes.
func (n *Namespace) Configure(index int, want netstate.Interface, opts ConfigureOptions) error {
	if err := n.writeSettings(want.Link.Name, want.Settings); err != nil {
		return err
	}
	var batch []message
	for _, a := range want.Addresses {
		batch = append(batch, addAddress(index, a, opts.Known))
	}
	up, err := setUp(index, want.Link)
	if err != nil {
		return err
	}
	if want.Link.Up {
		batch = append(batch, up)
	}
	for _, r := range want.Routes {
		batch = append(batch, addRoute(index, r, false))
	}
	return n.conn.run(batch...)
}

func passthru(link netstate.Link) bool {
	return link.Macvlan != nil && link.Macvlan.Mode == "passthru"
}

// setUp sets the device up. A passthru macvlan took the MAC of its parent when
// it was made, whatever it was asked for (macvlan_common_newlink), so that it is
// given its own here.
func setUp(index int, link netstate.Link) (message, error) {
	request := setLink(index, unix.IFF_UP)
	if passthru(link) && link.MAC != "" {
		attr, err := macAttr(link.MAC)
		if err != nil {
			return message{}, err
		}
		request.AddData(attr)
	}
	return message{request, "set " + link.Name + " up"}, nil
}

// writeSettings writes the interface's sysctls in n.
func (n *Namespace) writeSettings(ifName string, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	return n.do(func() error {
		var errs []error
		for key, value := range settings {
			family, name := filepath.Split(key)
			path := filepath.Join("/proc/sys/net", family, "conf", ifName, name)
			failpoint.Here("before setting")
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				errs = append(errs, fmt.Errorf("set %s of %s to %s: %w", key, ifName, value, err))
			}
			failpoint.Here("after setting")
		}
		return errors.Join(errs...)
	})
}

// Set writes the interface's sysctl of that key.
func (n *Namespace) Set(ifName, key, value string) error {
	return n.writeSettings(ifName, map[string]string{key: value})
}

// Delete deletes the device of that name, or returns ErrNoDevice.
func (n *Namespace) Delete(ifName string) error {
	link, err := n.link(ifName)
	if err != nil {
		return err
	}
	err = n.conn.run(deleteLink(link.Attrs().Index, ifName))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", ifName, ErrNoDevice)
	}
	return err
}

// EnableIPv6 turns IPv6 on for the device, if the kernel has IPv6 at all.
func (n *Namespace) EnableIPv6(ifName string) error {
	err := n.writeSettings(ifName, map[string]string{"ipv6/disable_ipv6": "0"})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
