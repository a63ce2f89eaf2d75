package wire

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// AnswerLen is how many bytes of a frame the filters pass. No answer to a probe is nearly as
// long.
const AnswerLen = 1514

// ARPFilter is a socket filter for a packet socket of ETH_P_ARP. It passes all frames that are
// for this host.
var ARPFilter = forThisHost([]bpf.Instruction{bpf.RetConstant{Val: AnswerLen}})

// NeighbourFilter is a socket filter for a packet socket of ETH_P_IPV6. It passes the
// neighbour solicitations and advertisements that are for this host. It does not look
// behind extension headers, as ParseClaim does not.
var NeighbourFilter = forThisHost([]bpf.Instruction{
	bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 1}, // The next header.
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 4},
	bpf.LoadAbsolute{Off: ethernetLen + ipv6Len, Size: 1}, // The type of the message.
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: neighbourSolicitation, SkipTrue: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: neighbourAdvertisement, SkipTrue: 1},
	bpf.RetConstant{Val: AnswerLen},
	bpf.RetConstant{Val: 0},
})

// forThisHost returns the filter, limited to frames that the kernel takes as sent to this host. It
// drops the frames that the socket itself sends. It also drops the frames of VLANs that have no
// device here. Those come without their tag (__netif_receive_skb_core marks them PACKET_OTHERHOST),
// and say nothing of this link.
func forThisHost(filter []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: unix.PACKET_MULTICAST, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
	}, filter...)
}
