package lease

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

func drawTime(t *rapid.T, what string) time.Time {
	if rapid.Bool().Draw(t, what+" is zero") {
		return time.Time{}
	}
	return time.UnixMilli(rapid.Int64Range(0, 7e12).Draw(t, what)).UTC()
}

func drawHolder(t *rapid.T) Holder {
	text := rapid.StringMatching(`[a-z0-9<&ü"\\\x00-\x1f ]{0,9}`)
	return Holder{
		ContainerID: rapid.StringMatching(`[a-z0-9]{1,9}`).Draw(t, "container"), IfName: text.Draw(t, "ifname"), Network: text.Draw(t, "network"),
		Pod: attachment.Pod{Namespace: text.Draw(t, "pod namespace"), Name: text.Draw(t, "pod name"), UID: text.Draw(t, "UID")}, Owner: drawOwner(t),
		Namespace: attachment.Namespace{Path: text.Draw(t, "path"), BootID: text.Draw(t, "boot"), Inode: rapid.Uint64().Draw(t, "inode"), Cookie: rapid.Uint64().Draw(t, "cookie")},
		Since:     drawTime(t, "since"), Origin: Origin(text.Draw(t, "origin")), Policy: drawPolicy(t),
	}
}

// Encoding and decoding keep every field.
func TestLeasesAreDecodedAsTheyWereEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9<&ü"\\ ]{0,9}`)
		l := Lease{
			Address: drawAddress(t), Owner: drawOwner(t), State: rapid.SampledFrom([]State{Held, Reserved, Quarantined}).Draw(t, "state"),
			Holders: rapid.SliceOfN(rapid.Custom(drawHolder), 0, 3).Draw(t, "holders"), Reason: text.Draw(t, "why"),
			ByHand: rapid.Bool().Draw(t, "by hand"), ByHandAt: drawTime(t, "at"), ByHandUntil: drawTime(t, "by hand until"),
			Conflict: rapid.Bool().Draw(t, "conflict"), ReleasedAt: drawTime(t, "released"), Until: drawTime(t, "until"),
			Claimed: rapid.Bool().Draw(t, "claimed"),
		}
		if rapid.Bool().Draw(t, "last") {
			l.Last = drawHolder(t)
		}
		b := encodeLease(l)
		got, err := decodeLease(b)
		must(t, err)
		if diff := cmp.Diff(l, got, sameLease); diff != "" {
			t.Fatalf("%s (-encoded +decoded):\n%s", b, diff)
		}
	})
}

// The stored form is the JSON of encoding/json, which users also see. So one description is enough for both.
func TestWhatIsStoredIsOrdinaryJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHolder(t)
		h.Namespace.BootID = "boot-1" // Users also see an empty one.
		l := Lease{Address: drawAddress(t), Owner: drawOwner(t), State: Reserved, Last: h, Until: drawTime(t, "until")}
		k := RequestedRanges{Sets: []RangeSet{drawSet(t, window(t))}}
		for i := range k.Sets[0] {
			k.Sets[0][i].Subnet = netip.PrefixFrom(k.Sets[0][i].First, 24).Masked()
		}
		for i, b := range [][]byte{encodeLease(l), encode(&k)} {
			var read, want any
			usual, err := json.Marshal([]any{l, k}[i])
			must(t, errors.Join(err, json.Unmarshal(usual, &want), json.Unmarshal(b, &read)))
			if diff := cmp.Diff(want, read); diff != "" {
				t.Fatalf("%s (-encoding/json +stored):\n%s", b, diff)
			}
		}
		b := encode(&k)
		var got RequestedRanges
		must(t, decode(b, "ranges", &got))
		if diff := cmp.Diff(k, got, sameLease, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Fatalf("%s (-encoded +decoded):\n%s", b, diff)
		}
	})
}

// A failing disk may return anything. The store reads it as damaged, or as a valid value.
func FuzzDecodeLease(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"address":"10.3.0.2","state":"held","holders":[{"containerID":"c1","ifName":"eth0","namespace":{"inode":1},"future":{"a":[1]}}],"future":7}`,
		`{"last":{"policy":{"sticky":true,"retain":"1m0s"},"since":"2026-01-02T03:04:05Z"},"owner":{"kind":"pod","name":"a\u0007"}}`,
		`{"address":7}`, `{"holders":{}}`, `{"until":"x"}`, `{"conflict":1}`, `{"state":"held"} 1`, `{"a":1,"a":2}`, "", "[", `{"why":"`,
		`{"sets":[[{"first":"10.3.0.2","last":"10.3.0.9","subnet":"10.3.0.0/24","gateway":"10.3.0.1","excluded":[{"first":"10.3.0.3","last":"10.3.0.3"}]}]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLease(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		again := encodeLease(l)
		got, err := decodeLease(again)
		must(t, err)
		// Text that is not UTF-8 is read as it is, and written as U+FFFD.
		third := encodeLease(got)
		if diff := cmp.Diff(string(again), string(third)); diff != "" {
			t.Errorf("%q (-written again +and once more):\n%s", b, diff)
		}
	})
}

// A store still reads everything that encoding/json could read.
func TestLeasesThatAreWrittenUnusually(t *testing.T) {
	for text, want := range map[string]Lease{
		`{"address":"10.3.0.2","until":null,"owner":null,"holders":null,"byHand":null,"last":{"namespace":{"inode":null}}}`: {Address: addr("10.3.0.2")},
		"{\"state\":\"held\"} \n":                 {State: Held},
		"{\"why\":\"a\xff\"}":                     {Reason: "a\ufffd"},
		`{"future":"\ud800"}`:                     {Unknown: Unknown{"future": jsontext.Value(`"\ud800"`)}},
		`{"until":"2026-03-04T05:06:07.5+01:00"}`: {Until: time.Date(2026, 3, 4, 4, 6, 7, 5e8, time.UTC)},
	} {
		got, err := decodeLease([]byte(text))
		if diff := cmp.Diff(want, got, sameLease); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	edit(t, n.path(), func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketLeases)).Put(addressKey(addr("10.3.0.2")), []byte(`{"state":7}`))
	})
	_, err := n.store(t).List(t.Context())
	n.refused(t, "one that can't be read", err, ErrDamaged, `store DIR/pods.db: 10.3.0.2: lease: not usable: number at "/state", where string belongs`)
}

func TestWhose(t *testing.T) {
	h := func(id string) Holder { return Holder{ContainerID: id, IfName: "eth0"} }
	for want, l := range map[string]Lease{
		"held by eth0 of c1 on pods":                                            {State: Held, Holders: []Holder{h("c1")}},
		"held by eth0 of c1 on pods (pod default/web-0)":                        {State: Held, Owner: pod("web-0"), Holders: []Holder{h("c1")}},
		"held by eth0 of c1 on pods and eth0 of c2 on pods (pod default/web-0)": {State: Held, Owner: pod("web-0"), Holders: []Holder{h("c1"), h("c2")}},
		"reserved for pod default/web-0":                                        {State: Reserved, Owner: pod("web-0")},
		"reserved: torn":                                                        {State: Reserved, Reason: "torn"},
		"in quarantine: released":                                               {State: Quarantined, Owner: pod("web-0"), Reason: "released"},
	} {
		l.Network = "pods"
		if got := l.Describe(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
