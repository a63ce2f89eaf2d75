package metrics

import (
	"context"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// poolsKept is how long the values of the last reading are used. A test sets it to 0.
var poolsKept = 5 * time.Second

const (
	// poolsWait is how long a question waits for a reading. After that it gets the values of the reading before.
	poolsWait = time.Second
	// poolsLimit bounds a reading: an ADD may hold the lock of a store.
	poolsLimit = 10 * time.Second
	// unchangedKept is how long the values of a store are used while its file is unchanged. Values also change without
	// a write: a quarantine ends.
	unchangedKept = time.Minute
)

var (
	leases    = desc("relink_ipam_leases", "Addresses of the pool that are not free, by state: held, reserved, or quarantined.", "network", "ranges", "state")
	poolSize  = desc("relink_ipam_pool_addresses", "Addresses that the pool has.", "network", "ranges")
	poolFree  = desc("relink_ipam_pool_free_addresses", "Addresses of the pool that are free. An ADD takes a quarantined address if none is free.", "network", "ranges")
	outside   = desc("relink_ipam_outside_leases", "Leases of the network outside of all pools that its configuration has.", "network")
	readable  = desc("relink_ipam_store_readable", "1 if the agent could read the network's leases, 0 if not.", "network")
	storeRead = desc("relink_ipam_store_read_timestamp_seconds", "When the agent read the network's leases last.", "network")
)

// pools shows the stores of relink-ipam. A store with many leases takes long to read, and the lock of a reader keeps ADDs
// waiting. So a store is read only if it has changed, at most every poolsKept, and no question waits longer than poolsWait.
type pools struct {
	dir string

	mu    sync.Mutex
	known map[string]*network
	// reading is closed at the end of the present reading. It is nil if there is none. read is when the last reading
	// ended.
	reading chan struct{}
	read    time.Time
}

// network has the values of one store.
type network struct {
	usage lease.Usage
	// granted is what the store has of pools that nodes share.
	granted lease.Granted
	// file is the store's file before the reading.
	file os.FileInfo
	read time.Time
	// failed says that the last reading did not work. Then usage and granted are from an earlier reading.
	failed bool
}

func newPools(dir string) *pools { return &pools{dir: dir, known: map[string]*network{}} }

// Describe implements prometheus.Collector.
func (p *pools) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leases, poolSize, poolFree, outside, readable, storeRead, nodeHas, nodeUsed, nodeTarget, nodeLost, nodeConfirmed,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pools) Collect(to chan<- prometheus.Metric) {
	p.refresh()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, n := range p.known {
		n.collect(name, to)
	}
}

// refresh starts a reading of the stores if it is time. It waits for the reading for at most poolsWait.
func (p *pools) refresh() {
	p.mu.Lock()
	if p.reading == nil && time.Since(p.read) >= poolsKept {
		p.reading = make(chan struct{})
		go p.readAll(p.reading)
	}
	reading := p.reading
	p.mu.Unlock()
	if reading == nil {
		return
	}
	select {
	case <-reading:
	case <-time.After(poolsWait):
	}
}

// readAll reads each store that has changed, and then closes done.
func (p *pools) readAll(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), poolsLimit)
	defer cancel()
	p.mu.Lock()
	before := p.known
	p.mu.Unlock()
	now := map[string]*network{}
	names, err := lease.Networks(p.dir)
	for _, name := range names {
		now[name] = readNetwork(ctx, p.dir, name, before[name])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.known = now
	} else {
		p.known = allFailed(before)
	}
	p.reading, p.read = nil, time.Now()
	close(done)
}

// readNetwork reads a store, unless it is unchanged.
func readNetwork(ctx context.Context, dir, name string, before *network) *network {
	n := &network{read: time.Now()}
	store, err := lease.Open(dir, name)
	if err == nil {
		n.file, err = os.Stat(store.Path())
	}
	if err == nil && before != nil && before.isAsItWas(n.file) {
		return before
	}
	if err == nil {
		n.usage, err = store.Usage(ctx)
	}
	if err == nil {
		n.granted, err = store.Granted(ctx)
	}
	if err == nil {
		return n
	}
	if before == nil {
		return &network{failed: true}
	}
	return &network{usage: before.usage, granted: before.granted, read: before.read, failed: true}
}

// isAsItWas says that the store is the same file as at the last reading, and that nobody has changed it since.
func (n *network) isAsItWas(file os.FileInfo) bool {
	return !n.failed && n.file != nil && os.SameFile(n.file, file) && n.file.Size() == file.Size() && n.file.ModTime().Equal(file.ModTime()) &&
		time.Since(n.read) < unchangedKept
}

// allFailed marks all stores as failed. It is for the case that not even the names of the stores can be read.
func allFailed(before map[string]*network) map[string]*network {
	now := map[string]*network{}
	for name, n := range before {
		now[name] = &network{usage: n.usage, granted: n.granted, read: n.read, failed: true}
	}
	return now
}

func (n *network) collect(name string, to chan<- prometheus.Metric) {
	plain := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		plain(d, v, append([]string{name}, labels...)...)
	}
	gauge(readable, number(!n.failed))
	if n.read.IsZero() {
		return
	}
	gauge(storeRead, timestamp(n.read))
	gauge(outside, float64(n.usage.Outside))
	n.collectGranted(name, plain)
	shown := map[string]bool{}
	for _, set := range n.usage.Sets {
		ranges := set.Ranges.String()
		if set.Pool != "" || shown[ranges] { // Two configurations of the network have these ranges: the first one has the leases. Pools are shown otherwise.
			continue
		}
		shown[ranges] = true
		gauge(leases, float64(set.Held), ranges, string(lease.Held))
		gauge(leases, float64(set.Reserved), ranges, string(lease.Reserved))
		gauge(leases, float64(set.Quarantined), ranges, string(lease.Quarantined))
		gauge(poolSize, float(set.Size), ranges)
		gauge(poolFree, float(set.Free), ranges)
	}
}

// float returns the nearest float64: an IPv6 pool can have more addresses than a float64 can count exactly.
func float(n *big.Int) float64 {
	f, _ := new(big.Float).SetInt(n).Float64()
	return f
}
