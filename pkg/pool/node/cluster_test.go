package node

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
	"github.com/relink-cni/relink/test/pooltest"
)

// clusterModel is three nodes on one API with the pool lan, and a controller. Everybody can be away, and answers can be lost.
type clusterModel struct {
	*pooltest.API
	*rapid.T
	controller *controller.Controller
	nodes      []*modelNode
	time       time.Time
	pods       int
	// requester is whose requests are made now, nil for the controller's and those of people. fault is what happens to them.
	requester *modelNode
	fault
	// starting is the owner whose pod starts now.
	starting string
	// lastAddress is the address that an owner has had last. It may get another one if that is excluded, or one of may: this was so once, or
	// the API has lost something.
	lastAddress  map[string]netip.Addr
	reassignable map[netip.Addr]bool
	excluded     netip.Addr
	backup       *backup
	// recovers says that the API has lost something, and that nodes tell what they have.
	recovers bool
	// ended says that no owner comes back any more.
	ended bool
	// seen counts what has happened in all towns. journal and log are for people.
	seen    map[string]int
	journal []string
	log     strings.Builder
}

// fault comes with a request, so many requests later. A process ends before or after it, or only the answer is lost, or somebody else
// does something just before.
type fault struct {
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

// modelNode is a node of a cluster. Its pods and its agent run while it is on.
type modelNode struct {
	*storeController
	cluster *clusterModel
	name    string
	dir     string
	boot    int
	booted  time.Time
	on      bool
	// cut says that the agent does not reach the API.
	cut  bool
	pods map[attachment.Key]podAddress
}

// podAddress is a pod that has an address. The owner is empty for a pod without a sticky address.
type podAddress struct {
	owner   string
	address netip.Addr
}

var errEnded = errors.New("the process has ended")

// newClusterModel has a pool of two to four blocks.
func newClusterModel(t *testing.T, rt *rapid.T, seen map[string]int) *clusterModel {
	w := &clusterModel{T: rt, time: time.Unix(2e9, 0), lastAddress: map[string]netip.Addr{}, reassignable: map[netip.Addr]bool{}, seen: seen}
	w.API = &pooltest.API{BeforeRequest: w.beforeRequest, AfterRequest: w.afterRequest}
	of := lan
	of.Spec.Ranges = []string{"10.3.0.0-10.3.0." + rapid.SampledFrom([]string{"15", "11", "7"}).Draw(rt, "last")}
	w.AddPool(of)
	w.controller = controller.New(controller.Config{API: w.API, Log: slog.New(slog.DiscardHandler), Owners: w})
	w.controller.SetClock(func() time.Time { return w.time })
	dir, err := os.MkdirTemp(t.TempDir(), "")
	must(rt, err)
	for i := range 3 {
		h := &modelNode{cluster: w, name: fmt.Sprint("node", i+1), on: true, booted: w.time.Add(-time.Hour), pods: map[attachment.Key]podAddress{}}
		h.dir = dir + "/" + h.name
		must(rt, os.Mkdir(h.dir, 0o700))
		w.nodes = append(w.nodes, h)
		w.taint(h, false)
		h.start()
		must(rt, h.store.SetPools(context.Background(), []string{"lan"}))
	}
	for range 2 {
		w.reconcileAll()
		w.pass(2 * time.Second)
	}
	return w
}

// start starts the agent of the node.
func (h *modelNode) start() {
	w := h.cluster
	uptime := func() (time.Duration, error) { return w.time.Sub(h.booted), nil }
	nc := New(Config{
		API: w.API, Node: h.name, Dir: h.dir, Log: slog.New(slog.NewTextHandler(io.Writer(&w.log), nil)).With("on", h.name), Settling: 1,
		Open: func(network string) (*lease.Store, error) {
			s, err := lease.Open(h.dir, network)
			if err == nil {
				s.SetClock(fmt.Sprint(h.name, "-boot-", h.boot), func() time.Time { return w.time }, uptime)
			}
			return s, err
		},
	})
	nc.clock = func() time.Time { return w.time }
	sc, err := nc.storeController("pods")
	must(w.T, err)
	h.storeController = sc
}

// run lets a process on the node do something.
func (h *modelNode) run(do func(context.Context)) {
	if !h.on {
		return
	}
	was := h.cluster.requester
	h.cluster.requester = h
	defer func() { h.cluster.requester = was }()
	do(context.Background())
}

func (h *modelNode) reconcile() {
	h.run(func(ctx context.Context) { h.Reconcile(ctx) })
}

// reconcileAll is one look of each node.
func (w *clusterModel) reconcileAll() {
	for _, h := range w.nodes {
		h.reconcile()
	}
}

// powerOff is a node without power.
func (h *modelNode) powerOff() {
	h.cluster.journalf("%s is off", h.name)
	h.on, h.pods = false, map[attachment.Key]podAddress{}
}

func (h *modelNode) powerOn() {
	w := h.cluster
	w.journalf("%s boots", h.name)
	h.boot++
	h.booted, h.on, h.cut = w.time, true, false
	w.pass(time.Minute)
	h.start()
}

func (w *clusterModel) pass(d time.Duration) { w.time = w.time.Add(d) }

func (w *clusterModel) taint(h *modelNode, dead bool) {
	w.AddNode(pool.Node{Name: h.name, UID: "uid-" + h.name, OutOfService: dead})
}

// beforeRequest is called before each request.
func (w *clusterModel) beforeRequest(string) error {
	if w.requester == nil {
		return nil
	}
	if w.requester.cut {
		return errAway
	}
	if w.after--; w.after != 0 {
		return nil
	}
	switch w.kind {
	case between:
		do := w.meanwhile
		w.fault = fault{kind: between}
		do()
	case endsBefore:
		w.requester.cut = true
		return errEnded
	}
	return nil
}

// afterRequest is called after each request that the API has done.
func (w *clusterModel) afterRequest(r string) error {
	w.recordRequest(r)
	if w.requester == nil || w.after != 0 {
		return nil
	}
	switch w.kind {
	case losesOne:
		w.kind = ""
		return errAway
	case endsAfter:
		w.requester.cut = true
		return errEnded
	}
	return nil
}

// withFault makes trouble while do runs.
func (w *clusterModel) withFault(t fault, do func()) {
	w.fault = t
	do()
	w.fault = fault{}
}

// withoutFault makes requests that nothing happens to.
func (w *clusterModel) withoutFault(do func(context.Context)) {
	was := w.requester
	w.requester = nil
	do(context.Background())
	w.requester = was
}

// recordRequest writes into the journal what the API has changed.
func (w *clusterModel) recordRequest(r string) {
	verb, what, _ := strings.Cut(r, " ")
	if verb != "create" && verb != "update" && verb != "delete" {
		return
	}
	who := "the controller"
	if w.requester != nil {
		who = w.requester.name
	}
	w.withoutFault(func(ctx context.Context) {
		if name, is := strings.CutPrefix(what, "block "); is {
			b, _ := w.Block(ctx, name)
			w.journalf("%s: %s: %s", who, r, textOf(b))
		} else if name, is := strings.CutPrefix(what, "claim "); is {
			c, _ := w.Claim(ctx, name)
			w.journalf("%s: %s: %s of %s on %s", who, r, c.Status.Address, c.Spec.Owner.Name, c.Status.Active.Node)
		}
	})
}

func textOf(b pool.Block) string {
	text := fmt.Sprintf("%s %s", b.Metadata.Name, b.Status.Addresses)
	for _, h := range b.Status.Holders {
		text += fmt.Sprintf(" %s=%s%s", h.ID, h.Node, strings.Repeat("!", min(1, len(h.Fenced))))
	}
	for _, w := range b.Status.Want {
		text += fmt.Sprintf(", %s wants %d %s", w.Node, w.Count, w.Address)
	}
	return text + fmt.Sprint(", unproven ", b.Status.Unproven)
}

func (w *clusterModel) journalf(format string, all ...any) {
	w.journal = append(w.journal, fmt.Sprintf(format, all...))
}

// fail ends the test, with all that has happened.
func (w *clusterModel) fail(format string, all ...any) {
	w.Helper()
	w.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, all...), w.log.String(), strings.Join(w.journal, "\n"))
}
