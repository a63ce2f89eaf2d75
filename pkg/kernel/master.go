package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// iflaBrVLANFiltering is IFLA_BR_VLAN_FILTERING.
const iflaBrVLANFiltering = 7

// master reads the master of the interface. If that is a VRF, it returns the number of its routing
// table, otherwise 0.
func (c *capture) master() (table uint32, err error) {
	if c.link.master == 0 {
		return 0, nil
	}
	master, err := c.sandbox.linkByIndex(c.link.master)
	if err != nil {
		return 0, err
	}
	kind := master.Kind
	switch bad := invalidName(master.Name); {
	case kind != netstate.KindBridge && kind != netstate.KindVRF:
		c.note(fmt.Sprintf("its master %s, a %s", quoted(master.Name), kind))
	case bad != "":
		c.note("its master, " + bad)
	default:
		c.captured.Master = &netstate.Master{Kind: kind, Name: master.Name}
	}
	if kind == netstate.KindVRF {
		return vrfTable(master.data)
	}
	if c.captured.Master == nil {
		return 0, nil
	}
	var filtersVLANs uint8
	if err := readFields(master.data, 0, field{iflaBrVLANFiltering, &filtersVLANs}); err != nil || filtersVLANs != 0 {
		c.note("its VLANs on the bridge " + master.Name)
	}
	c.captured.Master.Port, err = parsePort(c.link.portData)
	return 0, err
}

// vrfTable returns the number of the VRF's table.
func vrfTable(data []byte) (uint32, error) {
	table, err := attributeOf(data, 0, nl.IFLA_VRF_TABLE)
	return uint32(table), err
}

// tableOfVRF returns the number of the table of the VRF that the device is in, 0 for none.
func (n *Namespace) tableOfVRF(index int) (uint32, error) {
	link, err := n.linkByIndex(index)
	if err != nil || link.master == 0 {
		return 0, err
	}
	master, err := n.linkByIndex(link.master)
	if err != nil || master.Kind != netstate.KindVRF {
		return 0, err
	}
	return vrfTable(master.data)
}

func parsePort(data []byte) (port netstate.Numbers, err error) {
	err = rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) { readNumber(netstate.PortAttributes, a, &port) })
	return port, err
}

// enslave returns the requests that make the device a port of the recorded master. It returns
// ErrUnsupported if the master is of another kind now.
func (n *Namespace) enslave(index int, m netstate.Master) ([]rtnl.Message, error) {
	master, err := n.link(m.Name)
	if err != nil {
		return nil, fmt.Errorf("master of kind %s: %w", m.Kind, err)
	}
	if master.Kind != m.Kind {
		return nil, fmt.Errorf("master %s is a %s now, not a %s: %w", m.Name, master.Kind, m.Kind, ErrUnsupported)
	}
	batch := []rtnl.Message{setLink("enslave to "+m.Name, index, uint32Attr(unix.IFLA_MASTER, master.Index))}
	if len(m.Port) == 0 {
		return batch, nil
	}
	port := linkMessage(unix.RTM_NEWLINK, "set up the port of "+m.Name, index, 0, 0)
	info := port.AddRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_SLAVE_KIND, nl.NonZeroTerminated(m.Kind))
	addNumbers(info.AddRtAttr(nl.IFLA_INFO_SLAVE_DATA, nil), netstate.PortAttributes, m.Port)
	return append(batch, port), nil
}
