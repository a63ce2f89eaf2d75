package cluster

import (
	"testing"
	"time"
)

// grows makes the checkpoint of a sandbox older than any ADD takes. Before that, an interface that is not there may still come.
func (s *rowState) grows(t *testing.T, b *box) {
	t.Helper()
	records, unreadable, err := s.store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(unreadable, err)
	}
	for _, r := range records {
		if r.Attachment.ContainerID != b.id {
			continue
		}
		r.CapturedAt = r.CapturedAt.Add(-time.Hour)
		if err := s.store.Save(r); err != nil {
			t.Fatal(err)
		}
	}
}

func movesAway(t *testing.T, s *rowState) {
	web := s.set(t, "moves", 1)
	before := s.box(t, "before", s.member(t, web, 0))
	s.add(t, before, "lan", 2)
	s.vanishes(t, before)
	after := s.box(t, "after", s.anew(t, before.pod, by(web)))
	s.add(t, after, "san", 2)
	s.reclaims(t, "the sandbox before is gone", "lan .2 freed, reserved: "+dead, "checkpoint of before freed: "+dead)
	s.keeps(t, "the pod has just started: its interface on lan may still come")
	s.grows(t, after)
	s.runtime.forgets(after)
	s.keeps(t, "the runtime does not say that the pod runs")
	s.runtime.knows(after, true)
	const unused = "its owner lives: the StatefulSet shop/moves uses the ordinal 0 | the owner's pod runs in sandbox after, which has eth0 on san and nothing in network lan: the owner does not use the address any more"
	s.reclaims(t, "moved", "lan .2 freed, free: "+unused)
	s.has(t, after, "san", 2)
	s.is(t, "san", 2, "held by after for StatefulSet shop/moves, ordinal 0")
	s.relink(t, 0, "audit", "1 attachment fine")

	s.ends(t, after, "san")
	next := s.box(t, "next", s.anew(t, after.pod, by(web)))
	s.add(t, next, "san", 2)
	s.add(t, next, "lan@net1", 3)
	s.grows(t, next)
	s.keeps(t, "the next pod is on both")
}

func withoutIPAM(t *testing.T, s *rowState) {
	s.plain["flat"] = `{"type": "static", "addresses": [{"address": "` + s.at("flat", 9).String() + `/24"}]}`
	web := s.set(t, "leaves", 1)
	before := s.box(t, "before", s.member(t, web, 0))
	s.add(t, before, "lan", 2)
	s.ends(t, before, "lan")
	after := s.box(t, "after", s.anew(t, before.pod, by(web)))
	s.add(t, after, "flat", 9)
	s.keeps(t, "the pod has just started")
	s.grows(t, after)
	s.reclaims(t, "it has no address of relink-ipam", "lan .2 freed, free: the StatefulSet shop/leaves uses the ordinal 0 | which has eth0 on flat and nothing in network lan")
	s.has(t, after, "flat", 9)
	s.ends(t, after, "flat")
	s.add(t, s.box(t, "next", s.anew(t, after.pod, by(web))), "flat", 9)
}

// withoutRelink has a workload whose pods are not attached by relink any more: somebody took the annotation away.
func withoutRelink(t *testing.T, s *rowState) {
	web := s.set(t, "unplugged", 1)
	before := s.box(t, "before", s.member(t, web, 0))
	s.add(t, before, "lan", 2)
	s.vanishes(t, before)
	bare := s.box(t, "bare", s.anew(t, before.pod, by(web)))
	s.runtime.knows(bare, true)
	s.reclaims(t, "the sandbox before is gone", "lan .2 freed, reserved: "+dead, "checkpoint of before freed: "+dead)
	s.keeps(t, "the pod has just started")
	bare.created = bare.created.Add(-time.Hour)
	s.runtime.knows(bare, false)
	s.keeps(t, "it does not run")
	s.runtime.knows(bare, true)
	stranger := s.box(t, "stranger", made{"Pod", "shop", "unplugged-stranger", zeroUID})
	s.runtime.knows(stranger, true)
	s.keeps(t, "it is not known whose one sandbox is")
	s.runtime.forgets(stranger)
	s.reclaims(t, "relink has no part in it", "lan .2 freed, free: its owner lives: the StatefulSet shop/unplugged uses the ordinal 0 | the owner's pod runs in sandbox bare, which relink has attached to nothing: the owner does not use the address any more")
	s.runtime.forgets(bare)
	s.dies(t, bare)
	s.add(t, s.box(t, "next", s.anew(t, bare.pod, by(web))), "lan", 3)
}

// A workload stopped using the IPAM. What was left of it had another pod UID, and its next pods did not start: neither
// where they went, nor back.
func replayLeftovers(t *testing.T, s *rowState) {
	s.keys["lan"] = `, "rangeStart": "` + s.at("lan", 2).String() + `", "rangeEnd": "` + s.at("lan", 2).String() + `"`
	s.plain["flat"] = `{"type": "static", "addresses": [{"address": "` + s.at("flat", 9).String() + `/24"}]}`
	web := s.set(t, "leftovers", 1)
	before := s.box(t, "before", s.member(t, web, 0))
	s.add(t, before, "lan", 2)
	s.vanishes(t, before) // The lease and the checkpoint are left.
	away := s.box(t, "away", s.anew(t, before.pod, by(web)))
	s.add(t, away, "flat", 9)
	s.ends(t, away, "flat")
	again := s.box(t, "again", s.anew(t, away.pod, by(web)))
	s.add(t, again, "flat", 9)
	s.ends(t, again, "flat")
	stranger := s.box(t, "stranger", s.podOn(t, "shop", "leftovers-stranger"))
	s.refused(t, stranger, "lan", 11, "no address is free")
	returned := s.box(t, "back", s.anew(t, again.pod, by(web)))
	s.add(t, returned, "lan", 2)
	s.is(t, "lan", 2, "held by back for StatefulSet shop/leftovers, ordinal 0")
	s.reclaims(t, "back", "checkpoint of before freed: "+dead)
	s.has(t, returned, "lan", 2)
}

// A GC took the address of a pod that was on its way: its new UID was another than that of the lease. A second pod got the
// address.
func replayRestart(t *testing.T, s *rowState) {
	s.keys["lan"] = `, "rangeStart": "` + s.at("lan", 2).String() + `", "rangeEnd": "` + s.at("lan", 3).String() + `"`
	web := s.set(t, "restarting", 1)
	before := s.box(t, "before", s.member(t, web, 0))
	s.add(t, before, "lan", 2)
	s.add(t, s.box(t, "other", s.podOn(t, "shop", "restarting-other")), "lan", 3)
	waiting := s.box(t, "waiting", s.podOn(t, "shop", "restarting-waiting"))
	nobodyElse := func() {
		t.Helper()
		s.refused(t, waiting, "lan", 11, "no address is free")
	}
	pod := s.anew(t, before.pod, by(web))
	s.keeps(t, "the pod is made anew, and its sandbox before is there")
	nobodyElse()
	s.vanishes(t, before)
	nobodyElse()
	s.reclaims(t, "its sandbox before is gone", "lan .2 freed, reserved: "+dead, "checkpoint of before freed: "+dead)
	nobodyElse()
	s.gc(t, "lan", before)
	s.gc(t, "lan")
	s.keeps(t, "it waits")
	nobodyElse()
	after := s.box(t, "after", pod)
	s.add(t, after, "lan", 2)
	s.del(t, before, "lan") // Late.
	s.keeps(t, "it has the address")
	nobodyElse()
	s.has(t, after, "lan", 2)
	s.relink(t, 0, "audit", "2 attachments fine")
}

// A DEL had given the address up, and another pod had got it. Then the GC gave it up once more, by what it had noted of the
// first pod.
func replayTwiceFreed(t *testing.T, s *rowState) {
	s.keys["lan"] = `, "rangeStart": "` + s.at("lan", 2).String() + `", "rangeEnd": "` + s.at("lan", 2).String() + `"`
	first, second := s.box(t, "first", s.podOn(t, "shop", "twice-a")), s.box(t, "second", s.podOn(t, "shop", "twice-b"))
	s.add(t, first, "lan", 2)
	s.vanishes(t, first)
	s.notes(t, "noted", "lan .2 waiting: "+dead, "checkpoint of first waiting: "+dead)
	s.del(t, first, "lan")
	s.add(t, second, "lan", 2)
	s.keeps(t, "another pod has it")
	s.del(t, first, "lan")
	s.gc(t, "lan", first)
	s.is(t, "lan", 2, "held by second for pod shop/twice-b")
	s.has(t, second, "lan", 2)
}

// A pod has two networks, and the second has no address. The runtime's DEL of the first one was lost each time, until that
// had no address either.
func replayAttempts(t *testing.T, s *rowState) {
	s.keys["lan"] = `, "rangeStart": "` + s.at("lan", 2).String() + `", "rangeEnd": "` + s.at("lan", 5).String() + `"`
	s.keys["full"] = `, "rangeStart": "` + s.at("full", 2).String() + `", "rangeEnd": "` + s.at("full", 2).String() + `"`
	s.add(t, s.box(t, "full", s.podOn(t, "shop", "attempts-full")), "full", 2)
	attempt := func(id string, pod made, last int) {
		t.Helper()
		b := s.box(t, id, pod)
		s.add(t, b, "lan", last)
		s.refused(t, b, "full@net1", 11, "no address is free")
		s.vanishes(t, b)
	}
	stays := s.member(t, s.set(t, "attempts", 1), 0)
	for _, id := range []string{"s1", "s2", "s3", "s4", "s5"} {
		attempt(id, stays, 2) // It comes back to its own.
	}
	loose := s.podOn(t, "shop", "attempts-loose")
	attempt("l1", loose, 3)
	attempt("l2", loose, 4)
	attempt("l3", loose, 5)
	s.refused(t, s.box(t, "l4", loose), "lan", 11, "no address is free")
	s.relink(t, 0, "gc --dry-run", "its network namespace is gone")
	want := []string{"lan .2 freed, reserved: " + dead}
	for _, last := range []string{"3", "4", "5"} {
		want = append(want, "lan ."+last+" freed, free: "+dead)
	}
	for _, id := range []string{"s1", "s2", "s3", "s4", "s5", "l1", "l2", "l3"} {
		want = append(want, "checkpoint of "+id+" freed: "+dead)
	}
	s.reclaims(t, "after the attempts", want...)
	attempt("l5", loose, 3)
}
