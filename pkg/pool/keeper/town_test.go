package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
	"github.com/relink-cni/relink/pkg/pool/pooltest"
)

// town is three nodes on one API with the pool lan, and a controller. Everybody can be away, and answers can be lost.
type town struct {
	*pooltest.API
	*rapid.T
	controller *controller.Controller
	homes      []*home
	time       time.Time
	version    int
	pods       int
	// asks is whose requests are made now, nil for the controller's and those of people. trouble is what happens to them.
	asks *home
	trouble
	// starting is the owner whose pod starts now.
	starting string
	// had is the address that an owner has had last. It may get another one if that is excluded, or one of may: this was so once, or
	// the API has lost something.
	had      map[string]netip.Addr
	may      map[netip.Addr]bool
	excluded netip.Addr
	backup   *backup
	// recovers says that the API has lost something, and that nodes tell what they have.
	recovers bool
	// seen counts what has happened in all towns. journal and log are for people.
	seen    map[string]int
	journal []string
	log     strings.Builder
}

// trouble comes with a request, so many requests later. A process ends before or after it, or only the answer is lost, or somebody else
// does something just before.
type trouble struct {
	after     int
	kind      string
	meanwhile func()
}

// The kinds of trouble.
const (
	endsBefore = "the process ends before a request"
	endsAfter  = "the process ends after a request"
	losesOne   = "an answer is lost"
	between    = "somebody else comes between"
)

// home is a node of a town. Its pods and its agent run while it is on.
type home struct {
	*member
	town    *town
	name    string
	dir     string
	boot    int
	booted  time.Time
	on      bool
	kubelet bool
	// cut says that the agent does not reach the API.
	cut  bool
	pods map[attachment.Key]tenant
}

// tenant is a pod that has an address. The owner is empty for a pod without a sticky address.
type tenant struct {
	owner   string
	address netip.Addr
}

var errEnded = errors.New("the process has ended")

// newTown has a pool of two to four blocks.
func newTown(t *testing.T, rt *rapid.T, seen map[string]int) *town {
	w := &town{T: rt, time: time.Unix(2e9, 0), had: map[string]netip.Addr{}, may: map[netip.Addr]bool{}, seen: seen}
	w.API = &pooltest.API{On: w.begins, Lose: w.ends}
	of := lan
	of.Spec.Ranges = []string{"10.3.0.0-10.3.0." + rapid.SampledFrom([]string{"15", "11", "7"}).Draw(rt, "last")}
	w.AddPool(of)
	w.controller = controller.New(w.API, slog.New(slog.DiscardHandler))
	w.controller.SetClock(func() time.Time { return w.time })
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(rt, err)
	for i := range 3 {
		h := &home{town: w, name: fmt.Sprint("node", i+1), on: true, kubelet: true, booted: w.time.Add(-time.Hour), pods: map[attachment.Key]tenant{}}
		h.dir = dir + "/" + h.name
		must(rt, os.Mkdir(h.dir, 0o700))
		w.homes = append(w.homes, h)
		w.taint(h, false)
		h.renew()
		h.start()
		must(rt, h.store.WantPools(context.Background(), []string{"lan"}))
	}
	for range 2 {
		w.all()
		w.pass(2 * time.Second)
	}
	return w
}

// start starts the agent of the node.
func (h *home) start() {
	w := h.town
	uptime := func() (time.Duration, error) { return w.time.Sub(h.booted), nil }
	k := New(Options{
		API: w.API, Node: h.name, Dir: h.dir, Log: slog.New(slog.NewTextHandler(io.Writer(&w.log), nil)).With("on", h.name), Settling: 1, Uptime: uptime,
		Open: func(network string) (*lease.Store, error) {
			s, err := lease.Open(h.dir, network)
			if err == nil {
				s.SetClock(fmt.Sprint(h.name, "-boot-", h.boot), func() time.Time { return w.time }, uptime)
			}
			return s, err
		},
	})
	k.now = func() time.Time { return w.time }
	m, err := k.member("pods")
	must(w.T, err)
	h.member = m
}

func (h *home) renew() {
	h.town.version++
	h.town.SetLease(pool.NodeLease{Node: h.name, UID: "lease-" + h.name, Version: fmt.Sprint(h.town.version)})
}

// acts lets a process on the node do something.
func (h *home) acts(do func(context.Context)) {
	if !h.on {
		return
	}
	was := h.town.asks
	h.town.asks = h
	defer func() { h.town.asks = was }()
	do(context.Background())
}

func (h *home) looks() {
	h.acts(func(ctx context.Context) { h.Attest(ctx); h.Look(ctx) })
}

// all is one look of each node.
func (w *town) all() {
	for _, h := range w.homes {
		h.looks()
	}
}

// off is a node without power.
func (h *home) off() {
	h.town.tells("%s is off", h.name)
	h.on, h.pods = false, map[attachment.Key]tenant{}
}

func (h *home) boots() {
	w := h.town
	w.tells("%s boots", h.name)
	h.boot++
	h.booted, h.on, h.kubelet, h.cut = w.time, true, true, false
	w.pass(time.Minute)
	h.renew()
	h.start()
}

func (w *town) pass(d time.Duration) { w.time = w.time.Add(d) }

func (w *town) taint(h *home, dead bool) {
	w.AddNode(pool.Node{Name: h.name, UID: "uid-" + h.name, OutOfService: dead})
}

// begins is called before each request.
func (w *town) begins(string) error {
	if w.asks == nil {
		return nil
	}
	if w.asks.cut {
		return errAway
	}
	if w.after--; w.after != 0 {
		return nil
	}
	switch w.kind {
	case between:
		do := w.meanwhile
		w.trouble = trouble{kind: between}
		do()
	case endsBefore:
		w.asks.cut = true
		return errEnded
	}
	return nil
}

// ends is called after each request that the API has done.
func (w *town) ends(r string) error {
	w.notes(r)
	if w.asks == nil || w.after != 0 {
		return nil
	}
	switch w.kind {
	case losesOne:
		w.kind = ""
		return errAway
	case endsAfter:
		w.asks.cut = true
		return errEnded
	}
	return nil
}

// in makes trouble while do runs.
func (w *town) in(t trouble, do func()) {
	w.trouble = t
	do()
	w.trouble = trouble{}
}

// byPeople makes requests that nothing happens to.
func (w *town) byPeople(do func(context.Context)) {
	was := w.asks
	w.asks = nil
	do(context.Background())
	w.asks = was
}

// notes writes into the journal what the API has changed.
func (w *town) notes(r string) {
	verb, what, _ := strings.Cut(r, " ")
	if verb != "create" && verb != "update" && verb != "delete" {
		return
	}
	who := "the controller"
	if w.asks != nil {
		who = w.asks.name
	}
	w.byPeople(func(ctx context.Context) {
		if name, is := strings.CutPrefix(what, "block "); is {
			b, _ := w.Block(ctx, name)
			w.tells("%s: %s: %s", who, r, textOf(b))
		} else if name, is := strings.CutPrefix(what, "claim "); is {
			c, _ := w.Claim(ctx, name)
			w.tells("%s: %s: %s of %s on %s", who, r, c.Spec.Address, c.Spec.Owner.Name, c.Spec.Active.Node)
		}
	})
}

func textOf(b pool.Block) string {
	text := fmt.Sprintf("%s %s", b.Metadata.Name, b.Spec.Addresses)
	for _, h := range b.Spec.Holders {
		text += fmt.Sprintf(" %s=%s%s", h.ID, h.Node, strings.Repeat("!", min(1, len(h.Fenced))))
	}
	for _, w := range b.Spec.Want {
		text += fmt.Sprintf(", %s wants %d %s", w.Node, w.Count, w.Address)
	}
	return text + fmt.Sprint(", unproven ", b.Spec.Unproven)
}

func (w *town) tells(format string, all ...any) {
	w.journal = append(w.journal, fmt.Sprintf(format, all...))
}

// fail ends the test, with all that has happened.
func (w *town) fail(format string, all ...any) {
	w.Helper()
	w.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, all...), w.log.String(), strings.Join(w.journal, "\n"))
}
