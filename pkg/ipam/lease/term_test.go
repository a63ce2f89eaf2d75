package lease

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/pool"
)

// What pools have as spec.fenceAfter. A store gives for half of it after a sign of life.
const (
	short = 20 * time.Minute
	long  = time.Hour
)

var wan = pool.Layout{Name: "wan", UID: "uid-of-wan", Subnet: lan.Subnet, Ranges: []pool.Span{{First: addr("10.3.0.16"), Last: addr("10.3.0.19")}}, BlockSize: 4}

// termNode is a node that has addresses of two pools, and how many pods have asked for some.
type termNode struct {
	*node
	pods int
}

func newTermNode(t *testing.T) *termNode {
	t.Helper()
	n := newNode(t, "10.3.0.20", minute)
	must(t, n.store(t).SetPools(t.Context(), []string{"lan", "wan"}))
	n.grant(t, lan, "..++", "++++", "++++", "++++")
	n.grant(t, wan, "++++")
	return &termNode{node: n}
}

// sign is a renewal of the Lease that was written at most so long ago, none without a UID.
func (l *termNode) sign(t *testing.T, uid string, ago time.Duration, fenceAfter map[string]time.Duration) bool {
	t.Helper()
	s := Sign{uid, l.uptime - ago}
	if uid == "" {
		s = Sign{}
	}
	changed, err := l.store(t).Renew(t.Context(), s, fenceAfter)
	must(t, err)
	return changed
}

// poolState returns what the store has of the pool.
func (l *termNode) poolState(t *testing.T, name string) PoolState {
	t.Helper()
	all := l.granted(t).Pools
	return all[slices.IndexFunc(all, func(p PoolState) bool { return p.Name == name })]
}

// gives says what the next ADD from the pool comes to: "gives", "silent", "unwritten", or "unread".
func (l *termNode) gives(t *testing.T, name string) string {
	t.Helper()
	l.pods++
	_, err := l.store(t).Allocate(t.Context(), l.fromPools(fmt.Sprintf("c%d/eth0", l.pods), "", name))
	if err == nil {
		return "gives"
	}
	after := l.poolState(t, name).FenceAfter
	begins := "pool " + name + " of network pods: "
	const silence = "the Kubernetes API has had no sign of life of this node for too long"
	word := map[string]string{
		fmt.Sprintf("%s%s (spec.fenceAfter is %s): others may soon get its addresses; it gives some again when the kubelet and relink-agent reach the API", begins, silence, after): "silent",
		begins + "this node has to write its blocks anew: relink-agent does so as soon as the Kubernetes API answers":                                                               "unwritten",
		begins + "this node has not read its address pools since its boot: relink-agent reads them as soon as the Kubernetes API answers":                                           "unread",
	}[err.Error()]
	if word == "" || !errors.Is(err, ErrUnconfirmed) || errors.Is(err, ErrSilent) != (word == "silent") {
		t.Fatalf("pool %s: %v", name, err)
	}
	return word
}

// termStep is what happens to a node.
type termStep func(*testing.T, *termNode)

func passes(d time.Duration) termStep { return func(_ *testing.T, l *termNode) { l.later(d) } }

// signed is a sign of life that was written so long ago. The agent knows the time of both pools.
func signed(ago time.Duration) termStep {
	return func(t *testing.T, l *termNode) {
		l.sign(t, "lease-1", ago, map[string]time.Duration{"lan": short, "wan": long})
	}
}

// set is a change of lan's time, with a sign of life if there is a UID.
func renewed(uid string, lan time.Duration) termStep {
	return func(t *testing.T, l *termNode) { l.sign(t, uid, 0, map[string]time.Duration{"lan": lan}) }
}

// written is the agent's look at all blocks. It takes some time, and something happens meanwhile.
func written(takes time.Duration, during ...termStep) termStep {
	return func(t *testing.T, l *termNode) {
		before := l.granted(t).Pools
		l.later(takes)
		for _, happens := range during {
			happens(t, l)
		}
		must(t, l.store(t).Confirm(t.Context(), before...))
	}
}

func rebooted(_ *testing.T, l *termNode) { l.reboot("boot-2", time.Minute) }

// A store gives of a pool until half of its time has passed since the last sign of life. After that it gives again only if it
// begins a new session, and all blocks were written in it.
func TestDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		events    []termStep
		lan, wan  string
		ofLan     string // its session
		isWritten bool
	}{
		"no sign of life was needed so far":              {[]termStep{passes(24 * time.Hour)}, "gives", "gives", "boot-1", true},
		"the pool wants one, and there is none so far":   {[]termStep{renewed("", short), passes(24 * time.Hour)}, "gives", "gives", "boot-1", true},
		"before the deadline":                            {[]termStep{signed(0), passes(short/2 - time.Millisecond)}, "gives", "gives", "boot-1", true},
		"at the deadline":                                {[]termStep{signed(0), passes(short / 2)}, "silent", "gives", "boot-1", true},
		"the sign was written earlier":                   {[]termStep{signed(time.Minute), passes(short/2 - time.Minute)}, "silent", "gives", "boot-1", true},
		"at the other pool's deadline":                   {[]termStep{signed(0), passes(long / 2)}, "silent", "silent", "boot-1", true},
		"the time of day does not count":                 {[]termStep{signed(0), func(_ *testing.T, l *termNode) { l.day = l.day.Add(long) }}, "gives", "gives", "boot-1", true},
		"a second sign in time":                          {[]termStep{signed(0), passes(short/2 - time.Millisecond), signed(0), passes(short/2 - time.Millisecond)}, "gives", "gives", "boot-1", true},
		"an older sign changes nothing":                  {[]termStep{signed(0), passes(time.Minute), signed(5 * time.Minute), passes(short/2 - time.Minute)}, "silent", "gives", "boot-1", true},
		"a sign after the deadline is not enough":        {[]termStep{signed(0), passes(short / 2), signed(0)}, "unwritten", "gives", "boot-1.1", false},
		"another sign is not enough either":              {[]termStep{signed(0), passes(short / 2), signed(0), passes(time.Second), signed(0)}, "unwritten", "gives", "boot-1.1", false},
		"the blocks were written after the sign":         {[]termStep{signed(0), passes(short / 2), signed(0), written(time.Second)}, "gives", "gives", "boot-1.1", true},
		"the blocks were written before the sign":        {[]termStep{signed(0), passes(short / 2), written(0), signed(0)}, "unwritten", "gives", "boot-1.1", false},
		"the sign came while blocks were written":        {[]termStep{signed(0), passes(short / 2), written(0, signed(0))}, "unwritten", "gives", "boot-1.1", false},
		"writing took too long":                          {[]termStep{signed(0), passes(short / 2), signed(0), written(short / 2)}, "silent", "gives", "boot-1.1", false},
		"writing took too long, and then a sign":         {[]termStep{signed(0), passes(short / 2), signed(0), written(short / 2), signed(0)}, "unwritten", "gives", "boot-1.2", false},
		"a term that was over while blocks were written": {[]termStep{signed(0), passes(short / 2), signed(0), written(short/2, signed(0))}, "unwritten", "gives", "boot-1.2", false},
		"a late sign after the deadline":                 {[]termStep{signed(0), passes(short), signed(short / 2)}, "silent", "gives", "boot-1", true},
		"a late sign of a Lease that was made anew":      {[]termStep{signed(0), passes(short / 4), func(t *testing.T, l *termNode) { l.sign(t, "lease-2", short/2, nil) }, renewed("lease-2", short)}, "unwritten", "unwritten", "boot-1.1", false},
		"a sign that is late itself":                     {[]termStep{signed(short / 2)}, "silent", "gives", "boot-1", true},
		"the Lease was made anew":                        {[]termStep{signed(0), renewed("lease-2", short)}, "unwritten", "unwritten", "boot-1.1", false},
		"the Lease was made anew, and blocks written":    {[]termStep{signed(0), renewed("lease-2", short), written(0)}, "gives", "gives", "boot-1.1", true},

		"after a reboot":                        {[]termStep{signed(0), rebooted}, "silent", "silent", "boot-2", true},
		"after a reboot, read":                  {[]termStep{signed(0), rebooted, written(0)}, "silent", "silent", "boot-2", true},
		"after a reboot, read, then a sign":     {[]termStep{signed(0), rebooted, written(0), signed(0)}, "unwritten", "unwritten", "boot-2.1", false},
		"after a reboot, a sign":                {[]termStep{signed(0), rebooted, signed(0)}, "unread", "unread", "boot-2.1", false},
		"after a reboot, a sign, then read":     {[]termStep{signed(0), rebooted, signed(0), written(0)}, "gives", "gives", "boot-2.1", true},
		"a session of an earlier boot":          {[]termStep{signed(0), passes(short / 2), signed(0), written(0), rebooted, renewed("", 0)}, "unread", "silent", "boot-2.2", false},
		"without a term, after a reboot":        {[]termStep{signed(0), passes(short / 2), signed(0), renewed("", 0), written(0), rebooted, written(0)}, "gives", "silent", "boot-2.2", true},
		"a time that another boot has had, too": {[]termStep{signed(0), func(_ *testing.T, l *termNode) { l.boot = "boot-2" }}, "silent", "silent", "boot-2", true},

		"shorter, without a sign":             {[]termStep{renewed("lease-1", long), renewed("", short), passes(short / 2)}, "gives", "gives", "boot-1", true},
		"shorter, with a sign":                {[]termStep{renewed("lease-1", long), renewed("lease-1", short), passes(short / 2)}, "silent", "gives", "boot-1", true},
		"longer: first all blocks hear of it": {[]termStep{signed(0), renewed("", long)}, "unwritten", "gives", "boot-1.1", false},
		"longer, and written":                 {[]termStep{signed(0), renewed("", long), written(0), passes(long/2 - time.Millisecond)}, "gives", "gives", "boot-1.1", true},
		"longer, and then over":               {[]termStep{signed(0), renewed("", long), written(0), passes(long / 2)}, "silent", "silent", "boot-1.1", true},
		"never, after a silence":              {[]termStep{signed(0), passes(long), renewed("", 0)}, "unwritten", "silent", "boot-1.1", false},
		"never, and written":                  {[]termStep{signed(0), passes(long), renewed("", 0), written(0), passes(long)}, "gives", "silent", "boot-1.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTermNode(t)
			for _, happens := range test.events {
				happens(t, l)
			}
			if lan, wan := l.gives(t, "lan"), l.gives(t, "wan"); lan != test.lan || wan != test.wan {
				t.Errorf("lan %s, want %s; wan %s, want %s", lan, test.lan, wan, test.wan)
			}
			p := l.poolState(t, "lan")
			if p.Session != test.ofLan || p.Silent != (test.lan == "silent") || p.Written != test.isWritten {
				t.Errorf("session %s, want %s; silent %v, written %v", p.Session, test.ofLan, p.Silent, p.Written)
			}
			l.expectVerified(t)
		})
	}
}

// What pods have stays theirs after the deadline: only new addresses are not given.
func TestAfterTheDeadline(t *testing.T) {
	l := newTermNode(t)
	l.giveFrom(t, "held/eth0", "", "10.3.0.2")
	l.sign(t, "lease-1", 0, map[string]time.Duration{"lan": short})
	l.later(short)
	l.addFrom(t, "held/eth0", "", "10.3.0.2")
	if got := l.gives(t, "lan"); got != "silent" {
		t.Errorf("a new pod: %s", got)
	}
	l.del(t, "held/eth0")
	l.expect(t, "after the DEL", "10.3.0.2 quarantined held/eth0")
	// The agent gives back what nobody has.
	if g, err := l.store(t).MarkFree(t.Context(), "lan", 1, 1); err != nil || g.Addresses != "+++-" {
		t.Errorf("%q, %v", g.Addresses, err)
	}
}

// Whoever has to tell the blocks something hears of it, and nobody else does.
func TestRenewSaysWhatHasChanged(t *testing.T) {
	l := newTermNode(t)
	for i, step := range []struct {
		uid  string
		lan  time.Duration
		wait time.Duration
		want bool
	}{
		{"", 0, 0, false}, {"", short, 0, false}, {"lease-1", short, 0, true}, {"lease-1", short, 0, false}, {"", long, 0, true}, {"", long, 0, false},
		{"lease-1", long, long / 2, true}, {"lease-2", long, 0, true}, {"lease-2", short, 0, true}, {"", 0, 0, true}, {"lease-2", 0, long, false},
	} {
		l.later(step.wait)
		if got := l.sign(t, step.uid, 0, map[string]time.Duration{"lan": step.lan}); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	before := sumOf(t, l.path())
	if l.sign(t, "lease-2", 0, nil); sumOf(t, l.path()) != before {
		t.Error("no pool has a term, and the file has changed")
	}
}

// A damaged sign or term is told, and gives nothing.
func TestDamagedTerms(t *testing.T) {
	for name, test := range map[string]struct{ bucket, key, value, want string }{
		"a sign":             {bucketMeta, keySign, "7", `store DIR/pods.db: sign of life: not usable: number at "", where { belongs`},
		"the Lease of one":   {bucketMeta, keySign, `{"lease":7}`, `store DIR/pods.db: sign of life: not usable: number at "/lease", where string belongs`},
		"a term":             {bucketTerms, "lan", "7", `store DIR/pods.db: term of pool lan: not usable: number at "", where { belongs`},
		"the session of one": {bucketTerms, "lan", `{"confirmedSession":7}`, `store DIR/pods.db: term of pool lan: not usable: number at "/confirmedSession", where string belongs`},
	} {
		l := newTermNode(t)
		l.sign(t, "lease-1", 0, map[string]time.Duration{"lan": short})
		edit(t, l.path(), bucketPut(test.bucket, test.key, test.value))
		_, err := l.store(t).Allocate(t.Context(), l.fromPools("c1/eth0", "", "lan"))
		l.refused(t, name+": an ADD", err, ErrDamaged, test.want)
		l.refused(t, name+": Verify", l.store(t).Verify(t.Context()), ErrDamaged, test.want)
		_, err = l.store(t).Granted(t.Context())
		l.refused(t, name+": Granted", err, ErrDamaged, test.want)
		_, err = l.store(t).Renew(t.Context(), Sign{"lease-1", l.uptime}, nil)
		l.refused(t, name+": Renew", err, ErrDamaged, test.want)
	}
}

// What a newer relink has added to a term stays.
func TestATermKeepsWhatItDoesNotKnow(t *testing.T) {
	l := newTermNode(t)
	l.sign(t, "lease-1", 0, map[string]time.Duration{"lan": short})
	must(t, l.store(t).change(t.Context(), func(l *leaseTx) error {
		t, err := l.term("lan")
		t.Unknown = Unknown{"future": jsontext.Value("7")}
		return errors.Join(err, l.putTerm("lan", t))
	}))
	l.later(short)
	l.sign(t, "lease-1", 0, nil)
	must(t, l.store(t).Confirm(t.Context(), l.granted(t).Pools...))
	must(t, l.store(t).view(t.Context(), func(l *leaseTx) error {
		got, err := l.term("lan")
		if string(got.Unknown["future"]) != "7" || got.Session != 1 || got.ConfirmedSession != "boot-1.1" || got.FenceAfter != short {
			t.Errorf("%+v", got)
		}
		return err
	}))
}
