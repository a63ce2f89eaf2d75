package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// relink reports a store whose time is far from the clock's, and what would follow from it.
func TestClockRemark(t *testing.T) {
	begin := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for off, want := range map[time.Duration]string{
		0:                   "",
		59 * time.Minute:    "",
		-59 * time.Minute:   "",
		-72 * time.Hour:     "72h0m0s ahead of the clock",
		72 * time.Hour:      "72h0m0s behind the clock: the clock was behind at the boot. At the next boot, reservations would end too early.",
		8760 * time.Hour:    "8760h0m0s behind the clock",
		-8760 * time.Hour:   "8760h0m0s ahead of the clock: the clock was ahead at a boot. Reservations will end too late.",
		-3600 * time.Second: "1h0m0s ahead",
	} {
		store, err := lease.Open(t.TempDir(), "lan")
		if err != nil {
			t.Fatal(err)
		}
		day := begin
		store.SetClock("boot-1", func() time.Time { return day }, func() (time.Duration, error) { return time.Hour, nil })
		owner := attachment.Pod{Namespace: "default", Name: "web-0"}.Owner()
		if _, err := store.Reserve(t.Context(), netip.MustParseAddr("10.3.0.2"), owner, time.Hour); err != nil {
			t.Fatal(err)
		}
		day = begin.Add(off)
		got, err := clockRemark(t.Context(), store)
		if err != nil || !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("set by %s: %q, %v, want %q", off, got, err, want)
		}
		if want != "" && !strings.HasSuffix(got, "If the clock is right now, run relink ipam reset-clock --network lan") {
			t.Errorf("set by %s, it does not say what to do: %q", off, got)
		}
	}
}
