package pool

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// A node that is silent is fenced by time, if the pool's spec.fenceAfter (T) says so. The sign of life is the Lease that the
// kubelet renews in the API. Agent and controller both read it. Nobody compares clocks of two machines:
//
//   - The agent knows of a renewal only that it was written after the read that still had the value before. Let that read have
//     begun at B. The node gives nothing new from B + T/2 on, by its CLOCK_BOOTTIME. So it stops at most T/2 after the renewal
//     was written.
//   - The controller begins to count when it has read a value, and so after that was written. It fences when it has seen the same
//     value for T, by its own clock. Then it has read the block, and reads the same value once more.
//
// So T/2 lies between the last address that the node gives and the fence, at least five minutes. It is for an ADD that has its
// address already and is slow, for clocks that do not run equally fast, and for a virtual machine that stands still with its clocks.
// A controller that stands still fences later.
//
// Three rules belong to it:
//
//   - A renewal that the controller does not see any more was written after the node has stopped. The node gives again only in a
//     new session: it writes each of its blocks first. A fence that was decided before meets a conflict there, or it came first,
//     and the node reads it. The store decides in one transaction whether a renewal came in time.
//   - A session is of one Lease. If the Lease was made anew, a new session begins. A Lease that does not exist is a value for the
//     controller, too: without this rule, one could come and go between two looks.
//   - A holder says in its block which T it obeys ([Block.WithFenceAfter]). Only by that T the controller fences it. The store obeys a T before
//     a block says it. It obeys a longer one only in a new session: no block says the shorter one any more then.

// MinFenceAfter is the shortest time without a sign of life after which a node may count as dead.
const MinFenceAfter = 10 * time.Minute

var errFenceAfter = errors.New("must be a duration of at least 10m, such as 30m")

// parseFenceAfter reads the key of a pool, 0 for never.
func parseFenceAfter(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < MinFenceAfter {
		return 0, errFenceAfter
	}
	return d, nil
}

// GrantPeriod is how long after a sign of life a node gives new addresses. 0 is for ever.
func GrantPeriod(fenceAfter time.Duration) time.Duration { return fenceAfter / 2 }

// Session returns what a holder writes as its boot. n is how often the store had to begin anew in whatever boot.
func Session(bootID string, n uint64) string {
	if n == 0 {
		return bootID
	}
	return bootID + "." + strconv.FormatUint(n, 10)
}

// BootID returns the boot of the node in which the holder has last said that it has something, empty for none.
func (h Holder) BootID() string {
	bootID, _, _ := strings.Cut(h.Boot, ".")
	return bootID
}

// NodeLease is what counts of the Lease of a kubelet. Each renewal makes it another one.
type NodeLease struct {
	Node string
	// UID is empty for a Lease that does not exist.
	UID, Version string
	// Renewed is when the kubelet has renewed it, by the node's clock. It is only for people, and to tell two renewals apart.
	Renewed string
}

// RenewedSince says whether the Lease was surely renewed after the other one. A Lease that was made anew is none of these, and neither is
// an older one, as after etcd was restored from a backup.
func (l NodeLease) RenewedSince(o NodeLease) bool {
	version, err := strconv.ParseUint(l.Version, 10, 64)
	before, err2 := strconv.ParseUint(o.Version, 10, 64)
	return errors.Join(err, err2) == nil && l.UID != "" && l.UID == o.UID && version > before
}

// WithFenceAfter notes that the party gives nothing new GrantPeriod(fenceAfter) after its last sign of life. changed is false if the block says so
// already, or if the party has nothing of it.
func (b Block) WithFenceAfter(me Party, fenceAfter time.Duration) (_ Block, changed bool) {
	text := ""
	if fenceAfter > 0 {
		text = fenceAfter.String()
	}
	return b.changeHolder(me, func(h *Holder) { h.FenceAfter = text })
}

// silencePrefix begins the reason of a fence by time.
const silencePrefix = "silent since "

// SilenceReason is the reason of a fence by time, as Holder.Fenced has it.
func SilenceReason(since time.Time, fenceAfter time.Duration) string {
	return silencePrefix + since.UTC().Format(time.RFC3339) + " (spec.fenceAfter " + fenceAfter.String() + ")"
}

// FencedByTime says whether the holder is fenced by time, and not because a person has declared its node dead.
func (h Holder) FencedByTime() bool { return strings.HasPrefix(h.Fenced, silencePrefix) }

// FenceTimeout is after how long without a sign of life the holder may be fenced, 0 for never.
func (h Holder) FenceTimeout() time.Duration {
	d, err := time.ParseDuration(h.FenceAfter)
	if err != nil || h.Fenced != "" {
		return 0
	}
	return max(0, d)
}
