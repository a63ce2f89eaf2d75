package netstate

import "fmt"

// Kinds of devices, as the kernel names them in IFLA_INFO_KIND. A device
// without that attribute is a NIC.
const (
	KindNIC     = "nic"
	KindBond    = "bond"
	KindVLAN    = "vlan"
	KindMacvlan = "macvlan"
	KindMacvtap = "macvtap"
	KindIPvlan  = "ipvlan"
	KindBridge  = "bridge"
	KindVRF     = "vrf"
	KindVeth    = "veth"
)

// Link is the device itself.
type Link struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Index int    `json:"index"`
	// MAC is in the form 02:00:00:00:00:01, lower case. Empty in a Link to
	// build: the kernel chooses one.
	MAC string `json:"mac,omitempty"`
	// MTU is in bytes. 0 in a Link to build: the parent's MTU.
	MTU int  `json:"mtu"`
	Up  bool `json:"up"`
	// TxQueueLen is in packets. Nil in a Link to build: the kernel's default.
	TxQueueLen *int `json:"txQueueLen,omitempty"`
	// TxQueues and RxQueues are numbers of queues. 0 in a Link to build: the
	// kernel's default.
	TxQueues int    `json:"txQueues,omitempty"`
	RxQueues int    `json:"rxQueues,omitempty"`
	Alias    string `json:"alias,omitempty"`
	Group    uint32 `json:"group,omitempty"`
	LinkFlags
	Macvlan     *Macvlan     `json:"macvlan,omitempty"`
	IPvlan      *IPvlan      `json:"ipvlan,omitempty"`
	VLAN        *VLAN        `json:"vlan,omitempty"`
	VLANOptions *VLANOptions `json:"vlanOptions,omitempty"`
	// NIC identifies a link of KindNIC.
	NIC *NIC `json:"nic,omitempty"`
}

// LinkFlags are the flags of a device that somebody can set (netdevice(7), IFF_*). Each is true if it differs
// from the kernel's default.
type LinkFlags struct {
	Promiscuous  bool `json:"promiscuous,omitempty"`
	AllMulticast bool `json:"allMulticast,omitempty"`
	NoARP        bool `json:"noARP,omitempty"`
	NoMulticast  bool `json:"noMulticast,omitempty"`
}

// SharesMAC says that links of this kind have the MAC of their parent, and cannot have another.
func (l Link) SharesMAC() bool { return l.Kind == KindIPvlan }

// Macvlan has the attributes of a device of KindMacvlan or KindMacvtap that other kinds lack.
type Macvlan struct {
	// Mode is bridge, private, vepa, passthru or source, as in iproute2.
	Mode string `json:"mode"`
	// NoPromiscuous and NoDestination are the flags nopromisc (of passthru) and
	// nodst (of source).
	NoPromiscuous bool `json:"noPromiscuous,omitempty"`
	NoDestination bool `json:"noDestination,omitempty"`
	// BCQueueLen is the wanted length of the broadcast queue in packets
	// (IFLA_MACVLAN_BC_QUEUE_LEN). 0 in a Link to build: the kernel's default.
	BCQueueLen uint32 `json:"bcQueueLen,omitempty"`
	// BCCutoff is IFLA_MACVLAN_BC_CUTOFF (since 6.4), nil if the kernel tells none.
	BCCutoff *int `json:"bcCutoff,omitempty"`
	// Sources are the MACs of mode source.
	Sources []string `json:"sources,omitempty"`
}

// IPvlan has the attributes of a device of KindIPvlan that other kinds lack. The kernel has one mode and one
// flag for all devices on the same parent.
type IPvlan struct {
	// Mode is l2, l3 or l3s, as in iproute2.
	Mode string `json:"mode"`
	// Flag is bridge, private or vepa.
	Flag string `json:"flag"`
}

// VLAN identifies a device of KindVLAN on its parent.
type VLAN struct {
	ID int `json:"id"`
	// Protocol is 802.1q or 802.1ad.
	Protocol string `json:"protocol"`
}

func (v VLAN) String() string {
	if v.Protocol == Protocol8021Q {
		return fmt.Sprintf("VLAN %d", v.ID)
	}
	return fmt.Sprintf("VLAN %d (%s)", v.ID, v.Protocol)
}

// VLAN protocols, as in iproute2.
const (
	Protocol8021Q  = "802.1q"
	Protocol8021AD = "802.1ad"
)

// VLANOptions are the other attributes of a device of KindVLAN.
type VLANOptions struct {
	// Flags are those of VLANFlags that are on.
	Flags []string `json:"flags"`
	// IngressQoS maps the priority of a frame to that of the packet, EgressQoS the other way round. What is not
	// mapped becomes 0.
	IngressQoS map[uint32]uint32 `json:"ingressQoS,omitempty"`
	EgressQoS  map[uint32]uint32 `json:"egressQoS,omitempty"`
}

// VLANFlags are the flags of VLAN devices as in iproute2, in the order of their bits
// (linux/if_vlan.h, VLAN_FLAG_*). reorder_hdr is on by default.
var VLANFlags = []string{"reorder_hdr", "gvrp", "loose_binding", "mvrp", "bridge_binding"}

// Master is the device that another one is enslaved to.
type Master struct {
	// Kind is KindBridge or KindVRF.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Port has the attributes of a bridge's port by their names in linux/if_link.h, such as learning
	// (IFLA_BRPORT_LEARNING).
	Port Numbers `json:"port,omitempty"`
}
