package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// unknown are the fields of a JSON object that a newer relink has written: they are kept as
// they are, so that writing the object again loses nothing.
type unknown map[string]json.RawMessage

// encodeLease returns the lease as it is stored.
func encodeLease(l Lease) ([]byte, error) {
	l.Network = "" // It may be renamed.
	b, err := json.Marshal(l)
	if err != nil || !l.hasUnknown() {
		return b, err
	}
	object, err := withUnknown(b, l.unknown)
	if err != nil {
		return nil, err
	}
	if len(l.Holders) > 0 {
		var all []unknown
		for _, h := range l.Holders {
			all = append(all, h.object())
		}
		if object["holders"], err = json.Marshal(all); err != nil {
			return nil, err
		}
	}
	if len(l.Last.unknown) > 0 {
		if object["last"], err = json.Marshal(l.Last.object()); err != nil {
			return nil, err
		}
	}
	return json.Marshal(object)
}

func (l Lease) hasUnknown() bool {
	n := len(l.unknown) + len(l.Last.unknown)
	for _, h := range l.Holders {
		n += len(h.unknown)
	}
	return n > 0
}

// object returns the fields of the holder, those that this relink does not know among them.
func (h Holder) object() unknown {
	b, err := json.Marshal(h)
	if err != nil {
		return h.unknown
	}
	object, err := withUnknown(b, h.unknown)
	if err != nil {
		return h.unknown
	}
	return object
}

func withUnknown(b []byte, more unknown) (unknown, error) {
	object := unknown{}
	if err := json.Unmarshal(b, &object); err != nil {
		return nil, err
	}
	for key, value := range more {
		object[key] = value
	}
	return object, nil
}

// decodeLease reads a lease of schema 2. Most have no field that is not known here, and
// nothing has to be looked for then.
func decodeLease(b []byte) (Lease, error) {
	var l Lease
	strict := json.NewDecoder(bytes.NewReader(b))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&l); err == nil {
		return l, nil
	}
	l, err := decodeWithUnknown(b)
	if err != nil {
		return Lease{}, fmt.Errorf("lease: %w: %w", ErrDamaged, err)
	}
	return l, nil
}

func decodeWithUnknown(b []byte) (Lease, error) {
	var l Lease
	if err := json.Unmarshal(b, &l); err != nil {
		return l, err
	}
	var parts struct {
		Holders []json.RawMessage `json:"holders"`
		Last    json.RawMessage   `json:"last"`
	}
	err := json.Unmarshal(b, &parts)
	if err == nil {
		l.unknown, err = unknownOf(b, reflect.TypeFor[Lease]())
	}
	for i := 0; err == nil && i < len(l.Holders); i++ {
		l.Holders[i].unknown, err = unknownOf(parts.Holders[i], reflect.TypeFor[Holder]())
	}
	if err == nil && parts.Last != nil {
		l.Last.unknown, err = unknownOf(parts.Last, reflect.TypeFor[Holder]())
	}
	return l, err
}

// unknownOf returns the fields of the object that the struct has not.
func unknownOf(b []byte, of reflect.Type) (unknown, error) {
	object := unknown{}
	if err := json.Unmarshal(b, &object); err != nil {
		return nil, err
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		delete(object, name)
	}
	return object, nil
}

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

// decodeLeaseV1 reads a lease of schema 1 as one of schema 2.
func decodeLeaseV1(b []byte) (Lease, error) {
	var v1 leaseV1
	if err := json.Unmarshal(b, &v1); err != nil {
		return Lease{}, fmt.Errorf("lease: %w: %w", ErrDamaged, err)
	}
	h := Holder{
		ContainerID: v1.Attachment.ContainerID, IfName: v1.Attachment.IfName, PodUID: v1.PodUID,
		Namespace: attachment.Namespace{BootID: v1.BootID}, Since: v1.AcquiredAt, Origin: v1.Origin,
		Policy: Policy{Sticky: v1.Policy.Sticky, Retain: Duration(v1.Policy.Retain), Quarantine: Duration(v1.Policy.Quarantine)},
	}
	l := Lease{
		Address: v1.Address, Owner: v1.Owner, State: v1.State, Why: v1.Why, ByHand: v1.ByHand, ByHandUntil: v1.ByHandUntil,
		Conflict: v1.Conflict, ReleasedAt: v1.ReleasedAt, Until: v1.Until,
	}
	if v1.ByHand {
		// When is not known. What somebody has done by hand since comes before it.
		l.ByHandAt = latest(v1.AcquiredAt, v1.ReleasedAt)
	}
	if l.State == Held {
		l.Holders = []Holder{h}
	} else {
		l.Last = h
	}
	return l, nil
}
