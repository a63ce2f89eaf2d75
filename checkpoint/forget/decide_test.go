package forget

import (
	"errors"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/sandbox"
)

var (
	gone    = sandbox.Evidence{Verdict: sandbox.VerdictGone, Reason: "nothing keeps it"}
	alive   = sandbox.Evidence{Verdict: sandbox.VerdictAlive, Reason: "it is at /ns"}
	unknown = sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "process 7 may not be looked at"}
)

func TestDecide(t *testing.T) {
	read := checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}}
	torn := &checkpoint.Unreadable{ContainerID: "c1", IfName: "eth0", Err: errors.New("torn")}
	directory := &checkpoint.Unreadable{ContainerID: "c1", Err: errors.New("permission denied")}
	for name, test := range map[string]struct {
		is           candidate
		named, force bool
		do           CheckpointState
		why          string
	}{
		"stale, gone":              {is: candidate{record: read, evidence: gone}, do: Forgotten, why: "its sandbox is gone: nothing keeps it"},
		"stale, alive":             {is: candidate{record: read, evidence: alive}, do: passed, why: "its sandbox is alive: it is at /ns"},
		"stale, unknown":           {is: candidate{record: read, evidence: unknown}, do: Kept, why: "nobody knows whether its sandbox is gone: process 7 may not be looked at. To forget it all the same: relink forget c1 --force"},
		"named, gone":              {is: candidate{record: read, evidence: gone}, named: true, do: Forgotten, why: "its sandbox is gone: nothing keeps it"},
		"named, alive":             {is: candidate{record: read, evidence: alive}, named: true, do: Kept, why: "its sandbox is alive: it is at /ns. --force forgets it all the same: relink restore will not bring this interface back then"},
		"named, unknown":           {is: candidate{record: read, evidence: unknown}, named: true, do: Kept, why: "nobody knows whether its sandbox is gone: process 7 may not be looked at. --force forgets it all the same"},
		"forced, gone":             {is: candidate{record: read, evidence: gone}, named: true, force: true, do: Forgotten, why: "its sandbox is gone: nothing keeps it"},
		"forced, alive":            {is: candidate{record: read, evidence: alive}, named: true, force: true, do: Forgotten, why: "its sandbox is alive (it is at /ns): relink restore will not bring this interface back"},
		"forced, unknown":          {is: candidate{record: read, evidence: unknown}, named: true, force: true, do: Forgotten, why: "nobody knows whether its sandbox is gone (process 7 may not be looked at): if it is alive, relink restore will not bring this interface back"},
		"torn, stale, gone":        {is: candidate{unreadable: torn, evidence: gone}, do: Forgotten, why: "its sandbox is gone: nothing keeps it"},
		"torn, stale, unknown":     {is: candidate{unreadable: torn, evidence: unknown}, do: Kept, why: "nobody knows whether its sandbox is gone: process 7 may not be looked at. To forget it all the same: relink forget c1 --force"},
		"a guess, alive, forced":   {is: candidate{unreadable: torn, evidence: alive, guessed: true}, named: true, force: true, do: Kept, why: "its sandbox is alive: it is at /ns. Nothing tells whether it is meant. To forget it: relink forget c1 --force"},
		"a guess, unknown, forced": {is: candidate{unreadable: torn, evidence: unknown, guessed: true}, named: true, force: true, do: Kept, why: "nobody knows whether its sandbox is gone: process 7 may not be looked at. To forget it all the same: relink forget c1 --force"},
		"no directory, forced":     {is: candidate{unreadable: directory, evidence: unknown}, named: true, force: true, do: Failed, why: "the sandbox's directory cannot be read: permission denied"},
		"no directory, of gone":    {is: candidate{unreadable: directory, evidence: gone}, do: Failed, why: "the sandbox's directory cannot be read: permission denied"},
	} {
		if do, why := decide(test.is, test.named, test.force); do != test.do || why != test.why {
			t.Errorf("%s: %s: %s\nwant %s: %s", name, do, why, test.do, test.why)
		}
	}
}

func TestTornEvidence(t *testing.T) {
	const of = "another checkpoint of its container tells the namespace: "
	for name, test := range map[string]struct {
		own    *sandbox.Evidence
		others []sandbox.Evidence
		want   sandbox.Evidence
	}{
		"its own":               {own: &gone, others: []sandbox.Evidence{alive}, want: gone},
		"nothing":               {want: sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "the checkpoint cannot be read, and nothing else tells its namespace"}},
		"another's is gone":     {others: []sandbox.Evidence{gone, gone}, want: sandbox.Evidence{Verdict: sandbox.VerdictGone, Reason: of + gone.Reason}},
		"one of two is alive":   {others: []sandbox.Evidence{gone, alive, unknown}, want: sandbox.Evidence{Verdict: sandbox.VerdictAlive, Reason: of + alive.Reason}},
		"one of two is unknown": {others: []sandbox.Evidence{unknown, gone}, want: sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: of + unknown.Reason}},
	} {
		if got := tornEvidence(test.own, test.others); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestLeaseMayRemain(t *testing.T) {
	for config, want := range map[string]bool{
		"":                                    true,
		`{"ipam": {"type": "relink-ipam"}}`:   true,
		`{"ipam": {"type": "host-local"}}`:    false,
		`{"name": "lan"}`:                     false,
		`{"ipam": "what is this"}`:            true,
		`{"type": "macvlan", "ipam": {}}`:     false,
		`{"ipam": {"type": "relink-ipam-2"}}`: false,
	} {
		if got := leaseMayRemain([]byte(config)); got != want {
			t.Errorf("%s: %v", config, got)
		}
	}
}
