package hostaccess

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

const (
	// DefaultName is the name of the pod's end.
	DefaultName = "host0"
	// DefaultMark is the bit of preserveSource.
	DefaultMark = 0x10000000
	// maxAlias is the longest alias that the kernel takes, in bytes (IFALIASZ less the zero).
	maxAlias = 255
)

// Options are what somebody asks for.
type Options struct {
	// Name is the name of the pod's end.
	Name string `json:"ifName"`
	// Services are the ranges of ClusterIPs. Extra are other addresses that the pod reaches through the node, such as that of
	// a node-local DNS.
	Services []netip.Prefix `json:"services,omitempty"`
	Extra    []netip.Prefix `json:"extra,omitempty"`
	// PreserveSource sends the answers to connections that come through the node back through it, whatever their source is.
	// It uses one bit of the connection's mark: Mark.
	PreserveSource bool   `json:"preserveSource,omitempty"`
	Mark           uint32 `json:"mark,omitempty"`
	// Masquerade gives what the pod sends through the node to others an address of the node as source.
	Masquerade bool `json:"masquerade,omitempty"`
}

// Access is the path between one pod and its node.
type Access struct {
	Options
	// HostName is the name of the host's end. No two attachments have the same.
	HostName string `json:"hostName"`
	// Alias is that of the host's end. It says whose the pair is.
	Alias string `json:"alias"`
	// MAC is that of both ends.
	MAC string `json:"mac"`
	// MTU is that of both ends, in bytes.
	MTU int `json:"mtu"`
	// Addresses are the pod's on this attachment, in their order there. Link-local ones are not among them.
	Addresses []netip.Addr `json:"addresses"`
}

// NewAccess returns the access of the attachment. mtu is that of the pod's interface, addresses are its addresses. It fails if the names are too
// long for the alias.
func NewAccess(key attachment.Key, pod attachment.Pod, asked Options, mtu int, addresses []netip.Addr) (Access, error) {
	text, err := aliasOf(key, pod)
	if err != nil {
		return Access{}, err
	}
	a := Access{Options: asked, HostName: HostName(key, asked.Masquerade), Alias: text, MAC: macOf(identity(key)), MTU: mtu}
	for _, addr := range addresses {
		if !addr.IsLinkLocalUnicast() {
			a.Addresses = append(a.Addresses, addr)
		}
	}
	return a, nil
}

// identity tells attachments apart. A container ID has no zero byte.
func identity(key attachment.Key) [sha256.Size]byte {
	return sha256.Sum256([]byte(key.ContainerID + "\x00" + key.IfName))
}

const (
	// hostPrefix begins the names of the host's ends, masqueradePrefix those of pods with masquerade.
	hostPrefix       = "rl"
	masqueradePrefix = hostPrefix + "m"
)

// HostName returns the name of the host's end. It follows from the container ID and the interface, so a DEL knows it without a
// checkpoint.
func HostName(key attachment.Key, masquerade bool) string {
	prefix, sum := hostPrefix, identity(key)
	if masquerade {
		prefix = masqueradePrefix
	}
	const digits = 12
	return prefix + hex.EncodeToString(sum[:])[:digits]
}

// macOf returns a MAC for local use (IEEE 802, the second bit of the first byte). It is in the pair from the beginning: udev
// gives a pair with a random MAC another one later.
func macOf(sum [sha256.Size]byte) string {
	mac := net.HardwareAddr(sum[16:22])
	mac[0] = mac[0]&^1 | 2
	return mac.String()
}

// alias is the text in the alias of the host's end: whose it is. It has no pod if the pod's name is too long.
type alias struct {
	Pod       string `json:"pod,omitempty"`
	Network   string `json:"network"`
	Container string `json:"container"`
	Interface string `json:"interface"`
}

// aliasOf returns the alias of the host's end.
func aliasOf(key attachment.Key, pod attachment.Pod) (string, error) {
	a := alias{Network: key.Network, Container: key.ContainerID, Interface: key.IfName}
	if pod.Name != "" {
		a.Pod = pod.String()
	}
	text := a.encode()
	if len(text) > maxAlias {
		a.Pod = ""
		text = a.encode()
	}
	if len(text) > maxAlias {
		return "", fmt.Errorf("%w: %q", ErrLongName, key.Network)
	}
	return text, nil
}

// ErrLongName says that the network's name is too long for the alias of a device.
var ErrLongName = errors.New("the network's name is too long for hostAccess")

func (a alias) encode() string {
	b, _ := json.Marshal(a) // Strings only.
	return string(b)
}

// decodeAlias reads the alias of a host's end. It is empty if no relink wrote the text.
func decodeAlias(text string) (a alias) {
	if json.Unmarshal([]byte(text), &a) != nil || a.Container == "" || a.Interface == "" || a.Network == "" {
		return alias{}
	}
	return a
}

// ParseAlias returns the attachment that the alias of a host's end names. It returns false if no relink wrote the alias.
func ParseAlias(text string) (attachment.Key, bool) {
	a := decodeAlias(text)
	return attachment.Key{Network: a.Network, ContainerID: a.Container, IfName: a.Interface}, a != alias{}
}

// owner is whose the pair with the alias is, for people.
func (a alias) owner() string {
	if a.Pod != "" {
		return a.Pod
	}
	return fmt.Sprintf("the sandbox %s (%s of network %s)", a.Container, a.Interface, a.Network)
}

// samePod says that both aliases name the same pod. Of two without a pod, nobody knows it.
func samePod(first, second string) bool {
	pod := decodeAlias(first).Pod
	return pod != "" && pod == decodeAlias(second).Pod
}

// hasFamily says that the access has an address of the family.
func (a Access) hasFamily(ipv6 bool) bool {
	return slices.ContainsFunc(a.Addresses, func(addr netip.Addr) bool { return addr.Is6() == ipv6 })
}

// singlePrefix is the address with the prefix length of one address.
func singlePrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// Validate returns the first reason why nobody can act upon a.
func (a Access) Validate() error {
	for key, name := range map[string]string{"ifName": a.Name, "hostName": a.HostName} {
		if err := attachment.ValidateIfName(name); err != nil {
			return fmt.Errorf("%s %q: %w", key, name, err)
		}
	}
	if _, err := net.ParseMAC(a.MAC); err != nil {
		return err
	}
	if _, ours := ParseAlias(a.Alias); !ours {
		return fmt.Errorf("alias %q names no attachment", a.Alias)
	}
	if a.MTU <= 0 {
		return fmt.Errorf("mtu %d", a.MTU)
	}
	if a.PreserveSource && bits.OnesCount32(a.Mark) != 1 {
		return fmt.Errorf("mark %#x is not one bit", a.Mark)
	}
	for _, addr := range a.Addresses {
		if !addr.IsValid() || addr.Zone() != "" {
			return fmt.Errorf("address %q", addr)
		}
	}
	for _, p := range slices.Concat(a.Services, a.Extra) {
		if !p.IsValid() || p != p.Masked() {
			return fmt.Errorf("network %q", p)
		}
	}
	return nil
}
