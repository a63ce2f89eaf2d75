package cluster

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

const (
	// seedEnv is the environment variable for the seed whose steps are to be tried again. The kernel chooses how they mix.
	seedEnv = "RELINK_SEED"
	// chaosGrace is longer than any ADD of the test (longestAdd).
	chaosGrace = 4 * time.Second

	sigkill, sigterm = syscall.SIGKILL, syscall.SIGTERM
)

// chaos is a node in a cluster in which everything happens at the same time.
type chaos struct {
	t     *testing.T
	api   *api
	truth *truth
	cri   *criOf

	dir, leaseDir, agentSocket, criSocket, kubeconfig string
	store                                             *checkpoint.Store
	env                                               []string
	// pool are the addresses of the network.
	pool string

	steps, made atomic.Int64
	ended       atomic.Bool
	mu          sync.Mutex
	counts      map[string]int
}

// Everything happens at once, on a small pool: workloads come, scale, restart and go; DELs are lost, late and doubled; plugins, the
// agent and the API are killed; the container runtime fails; and relink audits and frees. Never have two live pods one address.
// Nothing is freed that lives. An owner keeps its address. At the end everything goes, and nothing is left.
func TestChaos(t *testing.T) {
	fresh.Run(t, "", "ip link set lo up")
	seed := rand.Uint64()
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedEnv, seed)
	c := newChaos(t, "10.9.0.0/27") // Fewer addresses than everybody wants at times.
	var all sync.WaitGroup
	workloads := c.workloads()
	for i, w := range workloads {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for !c.over() {
				w.step(r)
				c.pause(r, 200)
			}
		})
	}
	for i, f := range []func(*rand.Rand){c.passes, c.passes, c.collect, c.relinkSays, c.compares} {
		all.Go(func() { f(rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	endAgent := c.disturb(rand.New(rand.NewPCG(seed, 1000)))
	c.ended.Store(true)
	all.Wait()
	for _, w := range workloads {
		w.settled()
	}
	if !t.Failed() {
		c.finish(workloads, rand.New(rand.NewPCG(seed, 1001)))
	}
	endAgent(true)
	t.Log(c)
	for _, what := range []string{"ADDs told", "ADDs refused", "plugins killed", "DELs lost", "GCs", "reports of relink", "holders freed", "reservations freed", "checkpoints freed"} {
		if c.counts[what] == 0 && !t.Failed() {
			t.Errorf("there were no %s: this test shows nothing about them", what)
		}
	}
}

// disturb ends and starts what relink asks, until the test has taken long enough. Then everybody is there. The function that it returns
// ends the agent.
func (c *chaos) disturb(r *rand.Rand) (endAgent func(inOrder bool)) {
	const atLeast = 3
	length := 5 * time.Second
	if os.Getenv("RELINK_LONG") != "" {
		length = 6 * time.Minute
	}
	endAgent = c.runAgent()
	for round, began := 0, time.Now(); (round < atLeast || time.Since(began) < length) && !c.over(); round++ {
		c.pause(r, 2000)
		does := r.IntN(4)
		if round < atLeast { // Each of them at least once.
			does = round
		}
		switch does {
		case 0:
			c.count("agents ended")
			endAgent(r.IntN(3) == 0)
			c.pause(r, 1000)
			endAgent = c.runAgent()
		case 1:
			c.count("failures of the runtime")
			c.cri.fails.Store(1 + r.Int32N(waysToFail-1))
			c.pause(r, 2000)
			c.cri.fails.Store(answers)
		case 2:
			c.count("APIs killed")
			c.api.stop()
			if c.pause(r, 1000); round < atLeast || r.IntN(2) == 0 {
				time.Sleep(chaosGrace) // For so long that what nobody can be asked about could be seen twice.
			}
			c.api.start(c.t)
		default: // A calm time, in which what is dead can be freed.
			time.Sleep(2 * chaosGrace)
		}
	}
	return endAgent
}
