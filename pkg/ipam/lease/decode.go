package lease

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/attachment"
)

// unknown are the fields of a JSON object that a newer relink has written. They stay as they are, so that
// nothing is lost when the object is written again.
type unknown map[string]jsontext.Value

// decodeLease reads a lease.
func decodeLease(b []byte) (l Lease, err error) {
	err = decode(b, func(r *reader) { l = r.lease() })
	if err != nil {
		return Lease{}, fmt.Errorf("lease: %w: %w", ErrDamaged, err)
	}
	return l, nil
}

// decodeState reads only the state of a lease.
func decodeState(b []byte) (s State, err error) {
	r := newReader(b)
	r.token('{')
	for r.err == nil && r.decoder.PeekKind() != '}' {
		if r.text() == "state" {
			s = State(r.text())
			break
		}
		r.skip()
	}
	if r.err != nil {
		return "", fmt.Errorf("lease: %w: %w", ErrDamaged, r.err)
	}
	return s, nil
}

// decodeRequestedRanges reads what an ADD asked for, without the fields that a newer relink has written.
func decodeRequestedRanges(b []byte) (k RequestedRanges, err error) {
	err = decode(b, func(r *reader) { k = r.known() })
	if err != nil {
		return RequestedRanges{}, fmt.Errorf("ranges: %w: %w", ErrDamaged, err)
	}
	return k, nil
}

func decode(b []byte, read func(*reader)) error {
	r := newReader(b)
	read(r)
	if r.err != nil {
		return r.err
	}
	if _, err := r.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("more follows")
	}
	return nil
}

// reader reads what writer writes, and keeps the first error.
type reader struct {
	decoder *jsontext.Decoder
	err     error
}

func newReader(b []byte) *reader {
	// It is as lenient as encoding/json, which read the stores before.
	return &reader{decoder: jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
}

// token reads one token, which must be of the kind.
func (r *reader) token(kind jsontext.Kind) (t jsontext.Token) {
	if r.err == nil {
		t, r.err = r.decoder.ReadToken()
	}
	if r.err == nil && t.Kind() != kind {
		r.err = fmt.Errorf("%s at %q, where %s belongs", t.Kind(), r.decoder.StackPointer(), kind)
	}
	if r.err != nil {
		return jsontext.Token{}
	}
	return t
}

// null passes over a null, which stands for nothing.
func (r *reader) null() bool {
	if r.err != nil || r.decoder.PeekKind() != 'n' {
		return false
	}
	r.token('n')
	return true
}

// object reads an object: field reads the value of each key.
func (r *reader) object(field func(key string)) {
	if r.null() {
		return
	}
	r.token('{')
	for r.err == nil && r.decoder.PeekKind() != '}' {
		field(r.text())
	}
	r.token('}')
}

func (r *reader) list(value func()) {
	if r.null() {
		return
	}
	r.token('[')
	for r.err == nil && r.decoder.PeekKind() != ']' {
		value()
	}
	r.token(']')
}

func (r *reader) text() string {
	if r.null() {
		return ""
	}
	if t := r.token('"'); r.err == nil {
		return t.String()
	}
	return ""
}

func (r *reader) yes() bool {
	if r.null() {
		return false
	}
	if r.err == nil && r.decoder.PeekKind() == 'f' {
		r.token('f')
		return false
	}
	r.token('t')
	return r.err == nil
}

func (r *reader) number() (n uint64) {
	if r.null() {
		return 0
	}
	if t := r.token('0'); r.err == nil {
		n, r.err = t.Uint()
	}
	return n
}

// parse reads a text that is a time, an address or a duration.
func (r *reader) parse(into encoding.TextUnmarshaler) {
	if r.null() {
		return
	}
	if text := r.text(); r.err == nil {
		r.err = into.UnmarshalText([]byte(text))
	}
}

// value reads an unknown value.
func (r *reader) value() jsontext.Value {
	if r.err != nil {
		return nil
	}
	var v jsontext.Value
	v, r.err = r.decoder.ReadValue()
	return v.Clone()
}

// skip passes over a value.
func (r *reader) skip() {
	if r.err == nil {
		r.err = r.decoder.SkipValue()
	}
}

func (u unknown) with(key string, value jsontext.Value) unknown {
	if u == nil {
		u = unknown{}
	}
	u[key] = value
	return u
}

func (r *reader) lease() (l Lease) {
	r.object(func(key string) {
		switch key {
		case "address":
			r.parse(&l.Address)
		case "owner":
			l.Owner = r.owner()
		case "state":
			l.State = State(r.text())
		case "holders":
			r.list(func() { l.Holders = append(l.Holders, r.holder()) })
		case "last":
			l.Last = r.holder()
		case "why":
			l.Reason = r.text()
		case "byHand":
			l.ByHand = r.yes()
		case "byHandAt":
			r.parse(&l.ByHandAt)
		case "byHandUntil":
			r.parse(&l.ByHandUntil)
		case "conflict":
			l.Conflict = r.yes()
		case "releasedAt":
			r.parse(&l.ReleasedAt)
		case "until":
			r.parse(&l.Until)
		case "claimed":
			l.Claimed = r.yes()
		default:
			l.unknown = l.unknown.with(key, r.value())
		}
	})
	return l
}

func (r *reader) owner() (o attachment.Owner) {
	r.object(func(key string) {
		switch key {
		case "group":
			o.Group = r.text()
		case "kind":
			o.Kind = r.text()
		case "namespace":
			o.Namespace = r.text()
		case "name":
			o.Name = r.text()
		case "uid":
			o.UID = r.text()
		case "ordinal":
			o.Ordinal = r.ordinal()
		default:
			r.skip()
		}
	})
	return o
}

func (r *reader) ordinal() attachment.Ordinal {
	if r.null() {
		return 0
	}
	number := r.number()
	if number >= math.MaxInt32 && r.err == nil {
		r.err = fmt.Errorf("no pod has the ordinal %d", number)
	}
	if r.err != nil {
		return 0
	}
	return attachment.OrdinalOf(int(number))
}

func (r *reader) pod() (p attachment.Pod) {
	r.object(func(key string) {
		switch key {
		case "namespace":
			p.Namespace = r.text()
		case "name":
			p.Name = r.text()
		case "uid":
			p.UID = r.text()
		default:
			r.skip()
		}
	})
	return p
}

func (r *reader) holder() (h Holder) {
	r.object(func(key string) {
		switch key {
		case "containerID":
			h.ContainerID = r.text()
		case "ifName":
			h.IfName = r.text()
		case "network":
			h.Network = r.text()
		case "pod":
			h.Pod = r.pod()
		case "owner":
			h.Owner = r.owner()
		case "namespace":
			h.Namespace = r.namespace()
		case "since":
			r.parse(&h.Since)
		case "origin":
			h.Origin = Origin(r.text())
		case "policy":
			h.Policy = r.policy()
		default:
			h.unknown = h.unknown.with(key, r.value())
		}
	})
	return h
}

func (r *reader) namespace() (n attachment.Namespace) {
	r.object(func(key string) {
		switch key {
		case "path":
			n.Path = r.text()
		case "bootID":
			n.BootID = r.text()
		case "device":
			n.Device = r.number()
		case "inode":
			n.Inode = r.number()
		case "cookie":
			n.Cookie = r.number()
		default:
			r.skip()
		}
	})
	return n
}

func (r *reader) policy() (p Policy) {
	r.object(func(key string) {
		switch key {
		case "sticky":
			p.Sticky = r.yes()
		case "retain":
			r.parse(&p.Retain)
		case "quarantine":
			r.parse(&p.Quarantine)
		case "shared":
			p.Shared = r.yes()
		case "byOwner":
			p.ByOwner = r.yes()
		default:
			r.skip()
		}
	})
	return p
}

func (r *reader) known() (k RequestedRanges) {
	r.object(func(key string) {
		switch key {
		case "sets":
			r.list(func() {
				var set RangeSet
				r.list(func() { set = append(set, r.addresses()) })
				k.Sets = append(k.Sets, set)
			})
		case "pools":
			r.list(func() { k.Pools = append(k.Pools, r.text()) })
		case "policy":
			k.Policy = r.policy()
		default:
			r.skip()
		}
	})
	return k
}

func (r *reader) addresses() (result Range) {
	r.object(func(key string) {
		switch key {
		case "subnet":
			r.parse(&result.Subnet)
		case "gateway":
			r.parse(&result.Gateway)
		case "excluded":
			r.list(func() {
				var s Span
				r.object(func(key string) { r.end(&s, key) })
				result.Excluded = append(result.Excluded, s)
			})
		default:
			r.end(&result.Span, key)
		}
	})
	return result
}

// end reads the field of a span.
func (r *reader) end(s *Span, key string) {
	switch key {
	case "first":
		r.parse(&s.First)
	case "last":
		r.parse(&s.Last)
	default:
		r.skip()
	}
}
