package lease

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// poolMachine is a node with a pool of two blocks, and what it must have of them.
type poolMachine struct {
	*node
	t *testing.T
	// chars has a character for each address of both blocks.
	chars []byte
	// holds has the address of each attachment, beside says that it was given without a grant.
	holds     map[string]netip.Addr
	confirmed bool
	boots     int
}

func newPoolMachine(t *testing.T) *poolMachine {
	m := &poolMachine{node: newNode(t, "10.3.0.20", minute), t: t, chars: []byte(strings.Repeat(".", 8)), holds: map[string]netip.Addr{}}
	must(t, m.store(t).SetPools(t.Context(), []string{"lan"}))
	must(t, m.store(t).PutGrants(t.Context(), wide, nil))
	return m
}

// wide is lan without a gateway: all of its addresses can be given.
var wide = pool.Layout{
	Name: "lan", UID: "uid-of-lan", Subnet: lan.Subnet, Ranges: []pool.Span{{First: addr("10.3.0.0"), Last: addr("10.3.0.7")}}, BlockSize: 4,
}

func (m *poolMachine) grants(chars []byte) []pool.Grant {
	return []pool.Grant{granted(wide, 0, string(chars[:4])), granted(wide, 1, string(chars[4:]))}
}

func (m *poolMachine) address(i int) netip.Addr { return addr(fmt.Sprint("10.3.0.", i)) }

func (m *poolMachine) offset(a netip.Addr) int { return int(a.As4()[3]) }

// isLeased says whether the address has a lease now.
func (m *poolMachine) isLeased(i int) bool {
	_, err := m.store(m.t).Get(m.t.Context(), m.address(i))
	if err != nil && !errors.Is(err, ErrNotLeased) {
		m.t.Fatal(err)
	}
	return err == nil
}

// put is the agent: it stores what the API says. Sometimes it is wrong.
func (m *poolMachine) put(t *rapid.T) {
	next := bytes.Clone(m.chars)
	takesBack := false
	for i := range next {
		next[i] = rapid.SampledFrom([]byte{m.chars[i], m.chars[i], '+', '?', '.'}).Draw(t, fmt.Sprint("char ", i))
		takesBack = takesBack || m.chars[i] == pool.Marked && (next[i] == pool.GrantedMark || next[i] == pool.GrantedUnproven)
	}
	err := m.store(m.t).PutGrants(t.Context(), wide, m.grants(next))
	if takesBack != (err != nil) {
		t.Fatalf("%s becomes %s: %v", m.chars, next, err)
	}
	if err == nil {
		m.chars = next
	}
}

// mark is the agent: it marks addresses, and sometimes one that is not free.
func (m *poolMachine) mark(t *rapid.T) {
	index := rapid.IntRange(0, 1).Draw(t, "block")
	if m.missing(int64(index)) {
		return
	}
	offsets := rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 3, func(i int) int { return i }).Draw(t, "addresses")
	hands := rapid.Bool().Draw(t, "hands over")
	may, next, handed := true, bytes.Clone(m.chars), []netip.Addr(nil)
	for _, i := range offsets {
		i += 4 * index
		lease, err := m.store(m.t).Get(t.Context(), m.address(i))
		free := errors.Is(err, ErrNotLeased)
		if hands && !free {
			handed = append(handed, m.address(i))
			may = may && lease.State == Reserved
		}
		if strings.IndexByte(pool.GrantedChars, m.chars[i]) >= 0 {
			next[i] = pool.Marked
			may = may && (free || hands)
		}
	}
	o, err := m.store(m.t).Reconcile(t.Context(), wide, int64(index), func(p PoolState) (pool.Outcome, error) {
		return pool.Outcome{Grant: p.Grant(int64(index)).Mark(offsets), HandedOver: handed}, nil
	})
	if bytes.Equal(next, m.chars) && err == nil {
		return
	}
	if may != (err == nil) {
		t.Fatalf("the marks %v in %s, handed over %v: %v", offsets, m.chars, handed, err)
	}
	if err != nil {
		return
	}
	m.chars = next
	if got := string(m.chars[4*index : 4*index+4]); o.Grant.Addresses != got {
		t.Fatalf("Reconcile returns %s, want %s", o.Grant.Addresses, got)
	}
}

// missing says whether nothing was ever stored of the block.
func (m *poolMachine) missing(index int64) bool {
	return !slices.ContainsFunc(m.granted(m.t).Pools[0].Grants, func(g pool.Grant) bool { return g.Index == index })
}

func (m *poolMachine) drawOwner(t *rapid.T) attachment.Owner {
	return pod(rapid.SampledFrom([]string{"web-0", "web-1"}).Draw(t, "owner"))
}

func (m *poolMachine) allocate(t *rapid.T) {
	sandbox := rapid.SampledFrom([]string{"c1/eth0", "c2/eth0", "c3/eth0", "c4/eth0", "c5/eth0"}).Draw(t, "sandbox")
	r := m.fromPools(sandbox, m.drawOwner(t).Name, "lan")
	r.Policy = rapid.SampledFrom([]Policy{minute, {}, sticky, stickyFor(5 * time.Minute)}).Draw(t, "policy")
	if r.Probes = rapid.Bool().Draw(t, "probes"); rapid.Bool().Draw(t, "acquired") {
		r.QueriedPools = r.Pools
	}
	if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
		r.RequestedAddresses = append(r.RequestedAddresses, m.address(rapid.IntRange(0, 7).Draw(t, "wanted")))
	}
	if rapid.IntRange(0, 7).Draw(t, "migrates") == 0 {
		r.MigratingAddresses = append(r.MigratingAddresses, m.address(rapid.IntRange(0, 7).Draw(t, "beside")))
	}
	s := m.store(m.t)
	given, err := s.Allocate(t.Context(), r)
	if err != nil {
		m.mayRefuse(t, r, err)
		return
	}
	a := given[0].Address
	had, again := m.holds[sandbox]
	char := m.chars[m.offset(a)]
	switch {
	case again && a != had:
		t.Fatalf("%s had %s, and has %s", sandbox, had, a)
	case again || slices.Contains(r.MigratingAddresses, a):
	case !m.confirmed:
		t.Fatalf("%s was given before the agent has read the API", a)
	case strings.IndexByte(pool.GrantedChars, char) < 0 || char == pool.GrantedUnproven && !r.Probes:
		t.Fatalf("%s was given, and the node has %s of the pool", a, m.chars)
	}
	if f := s.PoolAddresses()[0]; f.Probe != (char == pool.GrantedUnproven) {
		t.Fatalf("%s (%c): probe %v", a, char, f.Probe)
	}
	m.holds[sandbox] = a
}

// mayRefuse fails the test if the ADD had to work: an address is free, and nothing else counts.
func (m *poolMachine) mayRefuse(t *rapid.T, r Request, err error) {
	var elsewhere *ElsewhereError
	var refused *RefusedError
	switch {
	case errors.Is(err, ErrUnconfirmed) && !m.confirmed, errors.Is(err, ErrTaken) && len(r.RequestedAddresses)+len(r.MigratingAddresses) > 0, errors.As(err, &refused) && len(r.RequestedAddresses) > 0:
	case errors.As(err, &elsewhere):
		if r.Policy.Sticky && r.QueriedPools == nil || len(r.RequestedAddresses) > 0 {
			return
		}
		t.Fatalf("%+v: %v", r, err)
	case errors.Is(err, ErrExhausted):
		for i, c := range m.chars {
			if !m.isLeased(i) && (c == pool.GrantedMark || c == pool.GrantedUnproven && r.Probes) {
				t.Fatalf("%s is free (%s): %v", m.address(i), m.chars, err)
			}
		}
	default:
		t.Fatalf("%+v: %v", r, err)
	}
}

func (m *poolMachine) release(t *rapid.T) {
	sandbox := rapid.SampledFrom([]string{"c1/eth0", "c2/eth0", "c3/eth0", "c4/eth0", "c5/eth0"}).Draw(t, "sandbox")
	must(t, m.store(m.t).Release(t.Context(), m.key(sandbox), Policy{}))
	delete(m.holds, sandbox)
}

func (m *poolMachine) expectAddress(t *rapid.T) {
	a, o := m.address(rapid.IntRange(0, 7).Draw(t, "address")), m.drawOwner(t)
	before := m.lines(m.t)
	err := m.store(m.t).ReserveIncoming(t.Context(), a, o, "eth0", stickyFor(5*time.Minute), "it comes")
	l, looked := m.store(m.t).Get(t.Context(), a)
	switch {
	case err == nil && (looked != nil || l.Owner != o):
		t.Fatalf("%s is expected for %s, and has %+v", a, o, l)
	case err != nil && (!errors.Is(err, ErrTaken) || looked != nil || l.Owner == o):
		t.Fatalf("%s, which has %+v: %v", a, l, err)
	case err != nil && !cmp.Equal(before, m.lines(m.t)):
		t.Fatal("it was refused, and has changed something")
	}
}

func (m *poolMachine) unexpect(t *rapid.T) {
	i, o := rapid.IntRange(0, 7).Draw(t, "address"), m.drawOwner(t)
	a := m.address(i)
	was, err := m.store(m.t).Get(t.Context(), a)
	// What has come stays as long as the node has the address.
	has := strings.IndexByte(pool.GrantedChars, m.chars[i]) >= 0
	stays := err == nil && (was.State != Reserved || was.Owner != o || has)
	must(t, m.store(m.t).CancelIncoming(t.Context(), "lan", a, o))
	if stays != m.isLeased(m.offset(a)) {
		t.Fatalf("%s had %+v", a, was)
	}
}

func (m *poolMachine) pass(t *rapid.T) {
	m.later(rapid.SampledFrom([]time.Duration{time.Second, 61 * time.Second, time.Hour}).Draw(t, "time"))
}

func (m *poolMachine) bootAgain(*rapid.T) {
	m.boots++
	m.reboot(fmt.Sprint("boot-", m.boots+1), time.Minute)
	m.confirmed, m.holds = false, map[string]netip.Addr{}
}

func (m *poolMachine) confirm(t *rapid.T) {
	must(t, m.store(m.t).Confirm(t.Context()))
	m.confirmed = true
}

// check compares everything that the store tells.
func (m *poolMachine) check(t *rapid.T) {
	must(t, m.store(m.t).Verify(t.Context()))
	g := m.granted(m.t)
	stored := map[int64]string{0: "....", 1: "...."}
	for _, of := range g.Pools[0].Grants {
		stored[of.Index] = of.Addresses
	}
	if got := stored[0] + stored[1]; got != string(m.chars) || g.Confirmed != m.confirmed {
		t.Fatalf("%s, confirmed %v, want %s", got, g.Confirmed, m.chars)
	}
	used := 0
	for i := range m.chars {
		_, has := g.Pools[0].Leased[m.address(i)]
		if leased := m.isLeased(i); leased != has {
			t.Fatalf("%s: leased %v, and Granted says %v", m.address(i), leased, has)
		} else if leased && strings.IndexByte(pool.GrantedChars, m.chars[i]) >= 0 {
			used++
		}
	}
	if used != g.Pools[0].Used {
		t.Fatalf("%d used, want %d", g.Pools[0].Used, used)
	}
	for sandbox, a := range m.holds {
		if l, err := m.store(m.t).Get(t.Context(), a); err != nil || !l.HeldBy(m.key(sandbox)) {
			t.Fatalf("%s does not hold %s: %+v %v", sandbox, a, l, err)
		}
	}
}

// Whatever happens in whatever order: an ADD gives only what the node may give, only what nobody has is marked, and no mark comes
// back. The store is opened anew for each step.
func TestNothingIsGivenThatIsNotGranted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newPoolMachine(t)
		rt.Repeat(map[string]func(*rapid.T){
			"put": m.put, "mark": m.mark, "mark more": m.mark, "allocate": m.allocate, "allocate more": m.allocate, "release": m.release,
			"expect": m.expectAddress, "unexpect": m.unexpect, "pass": m.pass, "boot": m.bootAgain, "confirm": m.confirm, "confirm again": m.confirm, "": m.check,
		})
	})
}

// Encoding and decoding keep every field of a pool and of a grant.
func TestPoolsAreDecodedAsTheyWereEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9<&ü"\\ -]{1,9}`)
		span := func() pool.Span { return pool.Span{First: drawAddress(t), Last: drawAddress(t)} }
		l := pool.Layout{
			Name: text.Draw(t, "name"), UID: text.Draw(t, "uid"), Subnet: netip.PrefixFrom(drawAddress(t), rapid.IntRange(0, 32).Draw(t, "bits")),
			BlockSize: rapid.IntRange(1, 64).Draw(t, "block size"),
		}
		if rapid.Bool().Draw(t, "gateway") {
			l.Gateway = drawAddress(t)
		}
		for range rapid.IntRange(0, 3).Draw(t, "spans") {
			l.Ranges, l.Exclude = append(l.Ranges, span()), append(l.Exclude, span())
			l.Routes = append(l.Routes, pool.Route{Dst: text.Draw(t, "dst"), GW: text.Draw(t, "gw")})
		}
		b := encode(&l)
		var got pool.Layout
		must(t, decode(b, "layout", &got))
		if diff := cmp.Diff(l, got, sameGrant); diff != "" {
			t.Fatalf("%s (-encoded +decoded):\n%s", b, diff)
		}
		g := pool.Grant{
			Pool: l.Name, PoolUID: l.UID, Index: rapid.Int64Range(0, pool.MaxBlocks).Draw(t, "index"), Block: text.Draw(t, "block"),
			Epoch: rapid.Int64().Draw(t, "epoch"), First: addr("10.3.0.0"), Addresses: rapid.StringMatching(`[+?.-]{1,64}`).Draw(t, "addresses"),
		}
		if again, rest, err := decodeGrant(grantKey(g.Pool, g.Index), encodeGrant(g)); err != nil || again != g || len(rest) > 0 {
			t.Fatalf("%+v becomes %+v %q %v", g, again, rest, err)
		}
	})
}
