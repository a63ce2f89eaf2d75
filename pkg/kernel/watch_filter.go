package kernel

import (
	"encoding/binary"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The offsets of the fields that the filter looks at. A struct nlmsghdr of 16 bytes comes first. Each structure behind
// it begins with the family.
const (
	atType       = 4
	atFamily     = unix.SizeofNlMsghdr
	atNeighState = unix.SizeofNlMsghdr + 8  // ndm_state of struct ndmsg
	atNeighFlags = unix.SizeofNlMsghdr + 10 // ndm_flags
	atRouteFlags = unix.SizeofNlMsghdr + 8  // rtm_flags of struct rtmsg
	wholeMessage = 1 << 20
)

// watchFilter is a socket filter. It drops these messages before they take room in the receive buffer, because no
// checkpoint contains what they report:
//
//   - ports and forwarding entries of bridges (AF_BRIDGE);
//   - neighbours that the kernel has learnt. It tells several changes of each neighbour that a pod talks to. A
//     neighbour that somebody deletes is NUD_FAILED then (neigh_delete in net/core/neighbour.c), as one that does not
//     answer. One that is no longer needed is NUD_STALE;
//   - cached routes (RTM_F_CLONED).
var watchFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: atFamily, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_BRIDGE, SkipTrue: 17}, // drop
	bpf.LoadAbsolute{Off: atType, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_NEWROUTE), SkipTrue: 4},  // route
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_NEWNEIGH), SkipTrue: 6},  // new neighbour
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_DELNEIGH), SkipTrue: 8},  // deleted neighbour
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded16(unix.RTM_GETNEIGH), SkipTrue: 12}, // drop: a question to user space
	bpf.RetConstant{Val: wholeMessage},

	bpf.LoadAbsolute{Off: atRouteFlags, Size: 4},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: loaded32(unix.RTM_F_CLONED), SkipTrue: 9}, // drop
	bpf.RetConstant{Val: wholeMessage},

	bpf.LoadAbsolute{Off: atNeighState, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: loaded16(unix.NUD_PERMANENT), SkipTrue: 7}, // keep
	bpf.Jump{Skip: 2}, // proxy

	bpf.LoadAbsolute{Off: atNeighState, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: loaded16(unix.NUD_PERMANENT | unix.NUD_FAILED), SkipTrue: 4}, // keep

	bpf.LoadAbsolute{Off: atNeighFlags, Size: 1},                        // proxy
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.NTF_PROXY, SkipTrue: 2}, // keep
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 0},            // drop
	bpf.RetConstant{Val: wholeMessage}, // keep
}

// loaded16 returns the number as a filter loads it. The kernel writes it in the machine's order, and a filter loads in
// network byte order.
func loaded16(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

// loaded32 is loaded16 for a number of four bytes.
func loaded32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
