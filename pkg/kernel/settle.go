package kernel

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// dadInterval is how often WaitForDAD looks. Duplicate address detection takes a second and
// more.
const dadInterval = 20 * time.Millisecond

// WaitForDAD waits until no IPv6 address of the interface is tentative any more. It returns an
// error if duplicate address detection finds that another host has an address (RFC 4862, section
// 5.4), or if the limit is over. It returns ErrNoDevice if the interface is not there.
func (n *Namespace) WaitForDAD(ifName string, limit time.Duration) error {
	link, err := n.link(ifName)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(dadInterval) {
		addresses, err := n.liveAddresses(link.Index, []int{unix.AF_INET6})
		var flags uint32
		for _, a := range addresses {
			flags |= a.flags
		}
		switch {
		case err != nil:
			return err
		case flags&unix.IFA_F_DADFAILED != 0:
			return fmt.Errorf("%s: another host on the network has its IPv6 address", ifName)
		case flags&unix.IFA_F_TENTATIVE == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s: its IPv6 addresses are still tentative after %s", ifName, limit)
		}
	}
}

// HasTentative says that the kernel still asks on the link whether another host has one of the device's addresses. Without a carrier it
// never ends.
func (n *Namespace) HasTentative(index int) (bool, error) {
	addresses, err := n.liveAddresses(index, []int{unix.AF_INET6})
	return slices.ContainsFunc(addresses, func(a liveAddress) bool {
		return !a.kernels && a.flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == unix.IFA_F_TENTATIVE
	}), err
}
