package lease

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// leaseV1 is a lease of schema 1. It had one holder, and durations in nanoseconds.
type leaseV1 struct {
	Address    netip.Addr       `json:"address"`
	Attachment attachment.Key   `json:"attachment"`
	Owner      attachment.Owner `json:"owner"`
	PodUID     string           `json:"podUID"`
	State      State            `json:"state"`
	Origin     Origin           `json:"origin"`
	Why        string           `json:"why"`
	Policy     struct {
		Sticky     bool          `json:"sticky"`
		Retain     time.Duration `json:"retain"`
		Quarantine time.Duration `json:"quarantine"`
	} `json:"policy"`
	ByHand      bool      `json:"byHand"`
	ByHandUntil time.Time `json:"byHandUntil"`
	Conflict    bool      `json:"conflict"`
	BootID      string    `json:"bootID"`
	AcquiredAt  time.Time `json:"acquiredAt"`
	ReleasedAt  time.Time `json:"releasedAt"`
	Until       time.Time `json:"until"`
}

// decodeLeaseV1 reads a lease of schema 1 as one of the present schema.
func decodeLeaseV1(b []byte) (Lease, error) {
	var v1 leaseV1
	if err := json.Unmarshal(b, &v1); err != nil {
		return Lease{}, fmt.Errorf("lease: %w: %w", ErrDamaged, err)
	}
	h := Holder{
		ContainerID: v1.Attachment.ContainerID, IfName: v1.Attachment.IfName, Pod: attachment.Pod{UID: v1.PodUID},
		Namespace: attachment.Namespace{BootID: v1.BootID}, Since: v1.AcquiredAt, Origin: v1.Origin,
		Policy: Policy{Sticky: v1.Policy.Sticky, Retain: Duration(v1.Policy.Retain), Quarantine: Duration(v1.Policy.Quarantine)},
	}
	l := Lease{
		Address: v1.Address, Owner: v1.Owner, State: v1.State, Reason: v1.Why, ByHand: v1.ByHand, ByHandUntil: v1.ByHandUntil,
		Conflict: v1.Conflict, ReleasedAt: v1.ReleasedAt, Until: v1.Until,
	}
	if v1.ByHand {
		// Schema 1 does not tell when. So what was reserved by hand since then goes first.
		l.ByHandAt = latest(v1.AcquiredAt, v1.ReleasedAt)
	}
	if l.State == Held {
		l.Holders = []Holder{h}
	} else {
		l.Last = h
	}
	l.nameHolders()
	return l, nil
}
