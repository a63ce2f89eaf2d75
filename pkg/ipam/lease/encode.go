package lease

import (
	"bytes"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Leases are stored as JSON, which is written and read here field by field. encoding/json looks at the types
// first, anew in each process. A plugin is a process for one call: that look took a tenth of the time of an
// ADD or a DEL.

// encodeLease returns the lease as it is stored. Its network is not stored: it may get another name.
func encodeLease(l Lease) ([]byte, error) {
	return encode(func(w *writer) { w.lease(l) })
}

// encodeRequestedRanges returns what an ADD asked for as it is stored.
func encodeRequestedRanges(k RequestedRanges) ([]byte, error) {
	return encode(func(w *writer) { w.known(k) })
}

func encode(write func(*writer)) ([]byte, error) {
	var b bytes.Buffer
	// A text from a runtime may not be UTF-8: that is no reason to lose an address.
	w := writer{encoder: jsontext.NewEncoder(&b, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
	write(&w)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), w.err
}

// writer writes objects without the fields that are zero, and keeps the first error.
type writer struct {
	encoder *jsontext.Encoder
	err     error
}

func (w *writer) token(t jsontext.Token) {
	if w.err == nil {
		w.err = w.encoder.WriteToken(t)
	}
}

func (w *writer) object(fields func()) {
	w.token(jsontext.BeginObject)
	fields()
	w.token(jsontext.EndObject)
}

func (w *writer) key(key string) { w.token(jsontext.String(key)) }

// list writes n values, and nothing for an empty list.
func (w *writer) list(key string, n int, value func(i int)) {
	if n == 0 {
		return
	}
	w.key(key)
	w.token(jsontext.BeginArray)
	for i := range n {
		value(i)
	}
	w.token(jsontext.EndArray)
}

func (w *writer) text(key, text string) {
	if text != "" {
		w.key(key)
		w.token(jsontext.String(text))
	}
}

func (w *writer) yes(key string, value bool) {
	if value {
		w.key(key)
		w.token(jsontext.True)
	}
}

func (w *writer) number(key string, n uint64) {
	if n != 0 {
		w.key(key)
		w.token(jsontext.Uint(n))
	}
}

func (w *writer) time(key string, t time.Time) {
	if !t.IsZero() {
		w.text(key, t.Format(time.RFC3339Nano))
	}
}

func (w *writer) duration(key string, d Duration) {
	if d != 0 {
		w.text(key, d.String())
	}
}

func (w *writer) address(key string, a netip.Addr) {
	if a.IsValid() {
		w.text(key, a.String())
	}
}

func (w *writer) subnet(p netip.Prefix) {
	if p.IsValid() {
		w.text("subnet", p.String())
	}
}

func (w *writer) unknown(fields unknown) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		w.key(key)
		w.err = errors.Join(w.err, w.encoder.WriteValue(fields[key]))
	}
}

func (w *writer) lease(l Lease) {
	w.object(func() {
		w.address("address", l.Address)
		w.owner(l.Owner)
		w.text("state", string(l.State))
		w.list("holders", len(l.Holders), func(i int) { w.holder(l.Holders[i]) })
		if !l.Last.isZero() {
			w.key("last")
			w.holder(l.Last)
		}
		w.text("why", l.Reason)
		w.yes("byHand", l.ByHand)
		w.time("byHandAt", l.ByHandAt)
		w.time("byHandUntil", l.ByHandUntil)
		w.yes("conflict", l.Conflict)
		w.time("releasedAt", l.ReleasedAt)
		w.time("until", l.Until)
		w.yes("claimed", l.Claimed)
		w.unknown(l.unknown)
	})
}

func (w *writer) owner(o attachment.Owner) {
	if o == (attachment.Owner{}) {
		return
	}
	w.key("owner")
	w.object(func() {
		w.text("group", o.Group)
		w.text("kind", o.Kind)
		w.text("namespace", o.Namespace)
		w.text("name", o.Name)
		w.text("uid", o.UID)
		if number, ok := o.Ordinal.Number(); ok {
			w.key("ordinal")
			w.token(jsontext.Int(int64(number)))
		}
	})
}

func (w *writer) pod(p attachment.Pod) {
	if p == (attachment.Pod{}) {
		return
	}
	w.key("pod")
	w.object(func() {
		w.text("namespace", p.Namespace)
		w.text("name", p.Name)
		w.text("uid", p.UID)
	})
}

func (w *writer) holder(h Holder) {
	w.object(func() {
		w.text("containerID", h.ContainerID)
		w.text("ifName", h.IfName)
		w.text("network", h.Network)
		w.pod(h.Pod)
		w.owner(h.Owner)
		w.namespace(h.Namespace)
		w.time("since", h.Since)
		w.text("origin", string(h.Origin))
		w.policy(h.Policy)
		w.unknown(h.unknown)
	})
}

func (w *writer) namespace(n attachment.Namespace) {
	if n == (attachment.Namespace{}) {
		return
	}
	w.key("namespace")
	w.object(func() {
		w.text("path", n.Path)
		w.text("bootID", n.BootID)
		w.number("device", n.Device)
		w.number("inode", n.Inode)
		w.number("cookie", n.Cookie)
	})
}

func (w *writer) policy(p Policy) {
	if p == (Policy{}) {
		return
	}
	w.key("policy")
	w.object(func() {
		w.yes("sticky", p.Sticky)
		w.duration("retain", p.Retain)
		w.duration("quarantine", p.Quarantine)
		w.yes("shared", p.Shared)
		w.yes("byOwner", p.ByOwner)
	})
}

func (w *writer) known(k RequestedRanges) {
	w.object(func() {
		w.list("sets", len(k.Sets), func(i int) { w.set(k.Sets[i]) })
		w.list("pools", len(k.Pools), func(i int) { w.token(jsontext.String(k.Pools[i])) })
		w.policy(k.Policy)
	})
}

func (w *writer) set(s RangeSet) {
	w.token(jsontext.BeginArray)
	for _, r := range s {
		w.object(func() {
			w.span(r.Span)
			w.subnet(r.Subnet)
			w.address("gateway", r.Gateway)
			w.list("excluded", len(r.Excluded), func(i int) { w.object(func() { w.span(r.Excluded[i]) }) })
		})
	}
	w.token(jsontext.EndArray)
}

func (w *writer) span(s Span) {
	w.address("first", s.First)
	w.address("last", s.Last)
}
