package main

import (
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	const all = 1<<21 | 1<<12 | 1<<13 | 1<<11
	for name, test := range map[string]struct {
		granted uint64
		want    []string
	}{
		"all":           {all, nil},
		"and others":    {^uint64(0), nil},
		"no SYS_ADMIN":  {all &^ (1 << 21), []string{"CAP_SYS_ADMIN is missing: the agent needs it to enter the network namespaces of pods"}},
		"no NET_ADMIN":  {all &^ (1 << 12), []string{"CAP_NET_ADMIN is missing: the agent needs it to make interfaces"}},
		"no NET_RAW":    {all &^ (1 << 13), []string{"CAP_NET_RAW is missing: the agent needs it to tell the neighbours"}},
		"no BROADCAST":  {all &^ (1 << 11), []string{"CAP_NET_BROADCAST is missing: the agent needs it to hear of changes"}},
		"two are named": {1<<21 | 1<<12, []string{"CAP_NET_RAW is missing", "CAP_NET_BROADCAST is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := missingCapabilities(test.granted)
			if len(got) != len(test.want) {
				t.Fatalf("%d problems, want %d: %q", len(got), len(test.want), got)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("%q does not begin with %q", got[i], want)
				}
			}
		})
	}
}

func TestEffective(t *testing.T) {
	got, err := effectiveCapabilities("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000203800\nCapBnd:\t000001ffffffffff\n")
	if got != 0x203800 || err != nil {
		t.Errorf("%x, %v", got, err)
	}
	for _, status := range []string{"", "Name:\tx\n", "CapEff:\tzero\n"} {
		if _, err := effectiveCapabilities(status); err == nil {
			t.Errorf("%q: no error", status)
		}
	}
}
