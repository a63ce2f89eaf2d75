package metrics

import (
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// poolsMaxAge is how long the values of the last reading are used. A test sets it to 0.
var poolsMaxAge = 5 * time.Second

const (
	// scrapeTimeout is how long a question waits for a reading. After that it gets the values of the reading before.
	scrapeTimeout = time.Second
	// readTimeout bounds a reading: an ADD may hold the lock of a store.
	readTimeout = 10 * time.Second
	// unchangedMaxAge is how long the values of a store are used while its file is unchanged. Values also change without
	// a write: a quarantine ends.
	unchangedMaxAge = time.Minute
)

// stores shows the stores of relink-ipam. A store with many leases takes long to read, and the lock of a reader keeps ADDs
// waiting. So a store is read only if it has changed, at most every poolsMaxAge, and no question waits longer than scrapeTimeout.
type stores struct {
	dir string

	mu       sync.Mutex
	networks map[string]network
	// read is when the last reading ended. reading makes the present one serve all that ask.
	read    time.Time
	reading singleflight.Group
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

// show reads the stores if it is time, and shows them.
func (s *stores) show(p page) {
	select {
	case <-s.reading.DoChan("", s.readAll):
	case <-time.After(scrapeTimeout):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.networks {
		n.show(p.with("network", name))
	}
}

// readAll reads each store that has changed.
func (s *stores) readAll() (any, error) {
	s.mu.Lock()
	before, read := s.networks, s.read
	s.mu.Unlock()
	if time.Since(read) < poolsMaxAge {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	networks := map[string]network{}
	names, err := lease.Networks(s.dir)
	for _, name := range names {
		networks[name] = readNetwork(ctx, s.dir, name, before[name])
	}
	if err != nil { // Not even the names of the stores can be read.
		for name, n := range before {
			n.failed = true
			networks[name] = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.networks, s.read = networks, time.Now()
	return nil, nil
}

// readNetwork reads a store, unless it is unchanged. If it cannot, it returns the values of the reading before.
func readNetwork(ctx context.Context, dir, name string, before network) network {
	n := network{read: time.Now()}
	store, err := lease.Open(dir, name)
	if err == nil {
		n.file, err = os.Stat(store.Path())
	}
	if err == nil && before.isUnchanged(n.file) {
		return before
	}
	if err == nil {
		n.usage, err = store.Usage(ctx)
	}
	if err == nil {
		n.granted, err = store.Granted(ctx)
	}
	if err != nil {
		n = before
		n.failed = true
	}
	return n
}

// isUnchanged says that the store is the same file as at the last reading, and that nobody has changed it since.
func (n network) isUnchanged(file os.FileInfo) bool {
	return !n.failed && os.SameFile(n.file, file) && n.file.Size() == file.Size() && n.file.ModTime().Equal(file.ModTime()) &&
		time.Since(n.read) < unchangedMaxAge
}

func (n network) show(p page) {
	gauge(p, "relink_ipam_store_readable", "1 if the agent could read the network's leases, 0 if not.", !n.failed)
	if n.read.IsZero() {
		return
	}
	gauge(p, "relink_ipam_store_read_timestamp_seconds", "When the agent read the network's leases last.", n.read)
	gauge(p, "relink_ipam_outside_leases", "Leases of the network outside of all pools that its configuration has.", n.usage.Outside)
	n.showGranted(p)
	shown := map[string]bool{}
	for _, set := range n.usage.Sets {
		ranges := set.Ranges.String()
		if set.Pool != "" || shown[ranges] { // Two configurations of the network have these ranges: the first one has the leases. Pools are shown otherwise.
			continue
		}
		shown[ranges] = true
		p := p.with("ranges", ranges)
		for state, count := range map[lease.State]int{lease.Held: set.Held, lease.Reserved: set.Reserved, lease.Quarantined: set.Quarantined} {
			gauge(p.with("state", string(state)), "relink_ipam_leases", "Addresses of the pool that are not free, by state: held, reserved, or quarantined.", count)
		}
		gauge(p, "relink_ipam_pool_addresses", "Addresses that the pool has.", set.Size)
		gauge(p, "relink_ipam_pool_free_addresses", "Addresses of the pool that are free. An ADD takes a quarantined address if none is free.", set.Free)
	}
}
