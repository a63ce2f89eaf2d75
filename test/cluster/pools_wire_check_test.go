package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// voice is a host that says something: its MAC, behind a port of the switch.
type voice struct{ port, mac string }

func (v voice) String() string { return v.mac + " at " + v.port }

// said is what a host has said on the wire: that it has the address.
type said struct {
	at time.Time
	voice
	address netip.Addr
	// question is the number of the question that it answers, 0 for none of the test's.
	question uint32
}

// speaker is a pod as the test has made it.
type speaker struct {
	voice
	name string
	// addresses are what its ADD has returned, nil before and if it has failed.
	addresses []netip.Addr
	// ended is when its end began, zero before that. Until then, nobody else may have its addresses.
	began, ended time.Time
}

// track is what was heard of one address so far.
type track struct {
	now     voice
	before  map[voice]bool
	answers map[uint32]voice
}

// confusions returns what is wrong with what was said: hosts on the VLAN would send to the wrong pod. A problem of two voices with
// one address comes once.
func confusions(all []said, speakers []*speaker) (wrong []string) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	tracks := map[netip.Addr]*track{}
	for _, s := range all {
		if tracks[s.address] == nil {
			tracks[s.address] = &track{before: map[voice]bool{}, answers: map[uint32]voice{}}
		}
		for _, problem := range tracks[s.address].hears(s, speakers) {
			if !slices.Contains(wrong, problem) {
				wrong = append(wrong, problem)
			}
		}
	}
	return wrong
}

// hears notes what was said, and returns what is wrong with it.
func (t *track) hears(s said, speakers []*speaker) (wrong []string) {
	first, answered := t.answers[s.question]
	switch {
	case s.question == 0:
	case !answered:
		t.answers[s.question] = s.voice
	case first != s.voice:
		wrong = append(wrong, fmt.Sprintf("%s: %s and %s answer the same question", s.address, first, s.voice))
	}
	if s.voice == t.now {
		return wrong
	}
	p := speakerOf(s.voice, s.at, speakers)
	switch {
	case p == nil:
		wrong = append(wrong, fmt.Sprintf("%s: %s is no pod", s.address, s.voice))
	case p.addresses != nil && !slices.Contains(p.addresses, s.address):
		wrong = append(wrong, fmt.Sprintf("%s: %s has %v, and says that it has this", s.address, p.name, p.addresses))
	}
	if t.before[s.voice] {
		wrong = append(wrong, fmt.Sprintf("%s: %s is heard again after %s", s.address, s.voice, t.now))
	}
	if q := speakerOf(t.now, s.at, speakers); q != nil && (q.ended.IsZero() || q.ended.After(s.at)) {
		wrong = append(wrong, fmt.Sprintf("%s: %s is heard, and %s has not ended", s.address, s.voice, q.name))
	}
	t.before[t.now], t.now = true, s.voice
	return wrong
}

// speakerOf returns the pod that had this voice at that time, nil for none.
func speakerOf(v voice, at time.Time, speakers []*speaker) (is *speaker) {
	for _, p := range speakers {
		if p.voice == v && !p.began.After(at) {
			is = p
		}
	}
	return is
}

// addressMoves counts how often an address was heard of another voice than before, and how often of another port.
func addressMoves(all []said, of func(netip.Addr) bool) (voices, ports int) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	last := map[netip.Addr]voice{}
	for _, s := range all {
		before, heard := last[s.address]
		if last[s.address] = s.voice; !of(s.address) || !heard || before == s.voice {
			continue
		}
		voices++
		if before.port != s.port {
			ports++
		}
	}
	return voices, ports
}

// What is wrong on a wire is found, and what is right is not.
func TestConfusions(t *testing.T) {
	a, b := voice{"node1", "aa"}, voice{"node2", "bb"}
	one, other := netip.MustParseAddr("10.3.0.5"), netip.MustParseAddr("fd00:3::5")
	start := time.Unix(1000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	ended := func(second int) *speaker {
		return &speaker{voice: a, name: "pod-a", addresses: []netip.Addr{one, other}, began: at(0), ended: at(second)}
	}
	next := &speaker{voice: b, name: "pod-b", addresses: []netip.Addr{one, other}, began: at(0)}
	for _, test := range []struct {
		name     string
		speakers []*speaker
		all      []said
		want     []string
	}{
		{"two pods with their own", []*speaker{ended(9), next}, []said{{at(1), a, one, 1}, {at(1), b, other, 1}, {at(2), a, one, 2}}, nil},
		{"one after the other", []*speaker{ended(3), next}, []said{{at(1), a, one, 1}, {at(4), b, one, 0}, {at(5), b, one, 2}}, nil},
		{"in another order than they were said", []*speaker{ended(3), next}, []said{{at(4), b, one, 0}, {at(1), a, one, 1}}, nil},
		{"two answers", []*speaker{ended(1), next}, []said{{at(2), a, other, 7}, {at(2), b, other, 7}, {at(3), b, other, 8}, {at(4), b, other, 8}},
			[]string{"fd00:3::5: aa at node1 and bb at node2 answer the same question"}},
		{"another one too early", []*speaker{ended(3), next}, []said{{at(1), a, one, 1}, {at(2), b, one, 2}},
			[]string{"10.3.0.5: bb at node2 is heard, and pod-a has not ended"}},
		{"another one while it runs", []*speaker{{voice: a, name: "pod-a", began: at(0)}, next}, []said{{at(1), a, one, 1}, {at(8), b, one, 0}},
			[]string{"10.3.0.5: bb at node2 is heard, and pod-a has not ended"}},
		{"an ended one again", []*speaker{ended(1), next}, []said{{at(1), a, one, 1}, {at(2), b, one, 2}, {at(3), a, one, 3}},
			[]string{"10.3.0.5: aa at node1 is heard again after bb at node2", "10.3.0.5: aa at node1 is heard, and pod-b has not ended"}},
		{"the same MAC at another port", []*speaker{ended(1)}, []said{{at(0), a, one, 1}, {at(2), voice{"node2", "aa"}, one, 0}},
			[]string{"10.3.0.5: aa at node2 is no pod"}},
		{"an address that it was not given", []*speaker{{voice: a, name: "pod-a", addresses: []netip.Addr{one}, began: at(0)}}, []said{{at(1), a, other, 1}},
			[]string{"fd00:3::5: pod-a has [10.3.0.5], and says that it has this"}},
	} {
		if got := confusions(test.all, test.speakers); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}
