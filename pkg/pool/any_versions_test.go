package pool

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkAdopted checks one Adopt: what the grant was, what it is, and the block that it has seen.
func checkAdopted(t *rapid.T, was, is Grant, b Block, me Party, lost []int, err error) {
	ours := len(was.Offsets(GrantedChars)) > 0
	switch {
	case was.blockEnded(b.Metadata.UID):
		if !errors.Is(err, ErrStale) || is != was {
			t.Fatalf("%s of a block that was deleted: %s, %v", was.Addresses, is.Addresses, err)
		}
		return
	case was.Block != "" && was.Block != b.Metadata.UID && ours:
		if !errors.Is(err, ErrReplaced) || is != was {
			t.Fatalf("%s of another block: %s, %v", was.Addresses, is.Addresses, err)
		}
		return
	case was.Block == b.Metadata.UID && b.Status.Epoch < was.Epoch:
		if !errors.Is(err, ErrStale) || is != was {
			t.Fatalf("%s in epoch %d, and a block in epoch %d: %s, %v", was.Addresses, was.Epoch, b.Status.Epoch, is.Addresses, err)
		}
		return
	case err != nil || is.Epoch != b.Status.Epoch || is.Block != b.Metadata.UID:
		t.Fatalf("%+v of epoch %d of %s: %v", is, b.Status.Epoch, b.Metadata.UID, err)
	}
	for i := range is.Addresses {
		before := byte(NotGranted)
		if was.Addresses != "" {
			before = was.Addresses[i]
		}
		want := byte(GrantedMark)
		switch {
		case !b.HeldBy(me, i):
			want = NotGranted
		case before == Marked:
			want = Marked
		case slices.Contains(b.Status.Unproven, b.Address(i)):
			want = GrantedUnproven
		}
		gone := want == NotGranted && (before == GrantedMark || before == GrantedUnproven)
		if is.Addresses[i] != want || gone != slices.Contains(lost, i) {
			t.Fatalf("%q of %s makes %q, lost %v: address %d", was.Addresses, blockText(b), is.Addresses, lost, i)
		}
	}
}

// TestAdoptOfAnyVersion lets a node read versions of a block in any order, also of one that was deleted and made anew. It never goes back to
// an older epoch, and a mark never becomes an address that can be given. With the newest version it gives what it has there, but for
// marks.
func TestAdoptOfAnyVersion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parties := []Party{partyOf("0"), partyOf("1"), partyOf("2")}
		l := Layout{Name: "p", UID: "u", BlockSize: 8, Ranges: []Span{span("10.3.0.0", "10.3.0.7")}, Gateway: addr("10.3.0.3")}
		uids := 0
		anew := func() Block {
			b, _ := NewBlock(l, 0, rapid.SampledFrom(parties).Draw(t, "who makes it"), "boot-1")
			uids++
			b.Metadata.UID = fmt.Sprint("uid-", uids)
			return b
		}
		versions, me, g := []Block{anew()}, parties[0], Grant{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			newest := versions[len(versions)-1]
			switch rapid.SampledFrom([]string{"step", "step", "adopt", "adopt the newest", "mark", "make anew"}).Draw(t, "what") {
			case "step":
				next, _, _ := drawStep(t, newest, parties)
				versions = append(versions, next)
			case "adopt":
				b := rapid.SampledFrom(versions).Draw(t, "version")
				is, lost, err := g.Adopt(b, me)
				checkAdopted(t, g, is, b, me, lost, err)
				g = is
			case "adopt the newest":
				is, lost, err := g.Adopt(newest, me)
				checkAdopted(t, g, is, newest, me, lost, err)
				g = is
			case "mark":
				g = g.Mark(g.Offsets(GrantedChars)[:rapid.IntRange(0, len(g.Offsets(GrantedChars))).Draw(t, "marked")])
			case "make anew":
				if newest.Unused() {
					versions = append(versions, anew())
				}
			}
		}
	})
}

// TestOneEpochHasOneOwnerEach draws steps: two versions of a block in one epoch have the same owners, so an epoch is enough to tell which
// version is newer.
func TestOneEpochHasOneOwnerEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parties := []Party{partyOf("0"), partyOf("1"), partyOf("2")}
		l := Layout{Name: "p", UID: "u", BlockSize: 4, Ranges: []Span{span("10.3.0.0", "10.3.0.3")}}
		b, _ := NewBlock(l, 0, parties[0], "boot-1")
		b.Metadata.UID = "uid"
		gives := func(b Block) (all string) {
			for _, p := range parties {
				for i := range len(b.Status.Addresses) {
					all += fmt.Sprint(b.HeldBy(p, i), " ")
				}
			}
			return all
		}
		of := map[int64]string{b.Status.Epoch: gives(b)}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			next, what, _ := drawStep(t, b, parties)
			if was, known := of[next.Status.Epoch]; known && was != gives(next) {
				t.Fatalf("%s makes %s of %s, in the same epoch %d", what, blockText(next), blockText(b), next.Status.Epoch)
			}
			of[next.Status.Epoch], b = gives(next), next
		}
	})
}
