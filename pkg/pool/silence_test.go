package pool

import (
	"testing"
	"time"
)

func TestLayoutHasTheTimeOfSilence(t *testing.T) {
	const wrong = `": must be a duration of at least 10m, such as 30m`
	for text, want := range map[string]struct {
		after time.Duration
		wrong bool
	}{
		"": {0, false}, "10m": {10 * time.Minute, false}, "1h30m": {90 * time.Minute, false}, "600s": {10 * time.Minute, false},
		"9m59s": {0, true}, "0": {0, true}, "-30m": {0, true}, "30": {0, true}, "1d": {0, true}, "9999999999999h": {0, true},
	} {
		l, err := specOf(Spec{Subnet: "10.3.0.0/24", FenceAfter: text}).Layout()
		if want.wrong != (err != nil) || want.wrong && err.Error() != `AddressPool p: invalid spec.fenceAfter "`+text+wrong || l.FenceAfter != want.after {
			t.Errorf("%q: %s, %v, want %s", text, l.FenceAfter, err, want.after)
		}
	}
}

func TestObey(t *testing.T) {
	for name, test := range map[string]struct {
		b       Block
		was, is time.Duration
		changed bool
		says    string
	}{
		"for the first time": {blockOf("AB", "me", "a"), 0, time.Hour, true, "1h0m0s"},
		"said before":        {blockOf("A", "me"), time.Hour, time.Hour, false, "1h0m0s"},
		"another time":       {blockOf("A", "me"), time.Hour, 2 * time.Hour, true, "2h0m0s"},
		"never":              {blockOf("A", "me"), time.Hour, 0, true, ""},
		"never, as before":   {blockOf("A", "me"), 0, 0, false, ""},
		"a fenced node":      {blockOf("A", "me!"), 0, time.Hour, false, ""},
		"who has nothing":    {blockOf("A", "a"), 0, time.Hour, false, ""},
	} {
		b, _ := test.b.WithFenceAfter(partyOf("me"), test.was)
		before := b.clone()
		is, changed := b.WithFenceAfter(partyOf("me"), test.is)
		h, _ := is.Holder(partyOf("me"))
		if changed != test.changed || h.FenceAfter != test.says {
			t.Errorf("%s: Obey says %q, %t, want %q, %t", name, h.FenceAfter, changed, test.says, test.changed)
		}
		if blockText(is) != blockText(before) || is.Spec.Epoch != before.Spec.Epoch {
			t.Errorf("%s: Obey = %s, want %s", name, blockText(is), blockText(before))
		}
		if a, other := is.Holder(partyOf("a")); other && a.FenceAfter != "" {
			t.Errorf("%s: another node says %q", name, a.FenceAfter)
		}
		if h, is := b.Holder(partyOf("me")); is && changed && h.FenceAfter == test.says {
			t.Errorf("%s: Obey has changed the block that it was given", name)
		}
	}
}

// Only what a holder says itself makes it one that can be fenced for its silence. Who gets an address says nothing so far.
func TestSilenceOfAHolder(t *testing.T) {
	for name, test := range map[string]struct {
		h    Holder
		want time.Duration
	}{
		"it says nothing":     {Holder{}, 0},
		"a time":              {Holder{FenceAfter: "10m0s"}, 10 * time.Minute},
		"no time":             {Holder{FenceAfter: "soon"}, 0},
		"a time in the past":  {Holder{FenceAfter: "-10m"}, 0},
		"it is fenced before": {Holder{FenceAfter: "10m0s", Fenced: "dead"}, 0},
	} {
		if got := test.h.FenceTimeout(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	b, _ := blockOf("AA", "me").WithFenceAfter(partyOf("me"), time.Hour)
	b = b.HandOver(partyOf("me"), []int{1}, partyOf("a"))
	if h, is := b.Holder(partyOf("a")); !is || h.FenceTimeout() != 0 || h.Boot != "" {
		t.Errorf("who gets an address is %+v", h)
	}
}

func TestWhyAHolderIsFenced(t *testing.T) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	for why, want := range map[string]bool{
		"": false, "node has the taint node.kubernetes.io/out-of-service": false, SilenceReason(since, 30*time.Minute): true,
	} {
		if got := (Holder{Fenced: why}).FencedByTime(); got != want {
			t.Errorf("%q: %v, want %v", why, got, want)
		}
	}
	if got, want := SilenceReason(since, 30*time.Minute), "silent since 2026-03-01T11:00:00Z (spec.fenceAfter 30m0s)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSessionsDiffer(t *testing.T) {
	for _, test := range []struct {
		boot string
		n    uint64
		want string
	}{{"b1", 0, "b1"}, {"b1", 1, "b1.1"}, {"b2", 1, "b2.1"}, {"b1", 1<<64 - 1, "b1.18446744073709551615"}} {
		if got := Session(test.boot, test.n); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

func TestWhichLeaseSucceeds(t *testing.T) {
	was := NodeLease{Node: "n", UID: "u", Version: "99", Renewed: "1"}
	for name, test := range map[string]struct {
		is   NodeLease
		want bool
	}{
		"the same":            {was, false},
		"a renewal":           {NodeLease{"n", "u", "100", "2"}, true},
		"an older one":        {NodeLease{"n", "u", "98", "0"}, false},
		"it was made anew":    {NodeLease{"n", "v", "100", "2"}, false},
		"it does not exist":   {NodeLease{}, false},
		"no version to count": {NodeLease{"n", "u", "x", "2"}, false},
	} {
		if got := test.is.RenewedSince(was); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if (NodeLease{"n", "", "2", ""}).RenewedSince(NodeLease{"n", "", "1", ""}) {
		t.Error("a Lease without a UID succeeds")
	}
}
