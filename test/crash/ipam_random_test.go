package crash

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// massacre is a pool from which many attachments take addresses at the same time. Their programs are killed at random
// times.
type massacre struct {
	*pool
	seed uint64
	// want is the number of programs to kill.
	want int

	mu      sync.Mutex
	running []*exec.Cmd
	// hit are the programs that were killed while they held the store's lock.
	hit []*exec.Cmd
	// living has the attachments that were told an address, by that address.
	living map[netip.Addr]string
	// killed counts the killed programs by command, those killed under the lock of the store, and those that had
	// already printed their result.
	killed struct{ add, del, locked, printed int }
	ran    int
}

func (m *massacre) done() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.killed.add+m.killed.del >= m.want
}

// errKilled says that the program was killed.
var errKilled = errors.New("killed")

// run runs the program as one that may be killed.
func (m *massacre) run(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	m.mu.Lock()
	err := cmd.Start()
	if err == nil {
		m.running = append(m.running, cmd)
		m.ran++
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	hung := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !hung.Stop() {
		return nil, fmt.Errorf("it hung for %s: %w", patience, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = slices.DeleteFunc(m.running, func(c *exec.Cmd) bool { return c == cmd })
	exit := new(exec.ExitError)
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		if slices.Contains(m.hit, cmd) {
			m.killed.locked++
		}
		return out.Bytes(), errKilled
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s%s", err, &out, &errs)
	}
	if errs.Len() > 0 {
		return nil, fmt.Errorf("said on stderr: %s", &errs)
	}
	return out.Bytes(), nil
}

// kill kills at random times until enough programs were killed. Half of the kills are for the holder of the store's
// lock, because most programs only wait for it.
func (m *massacre) kill(r *rand.Rand) {
	for !m.done() {
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
		if r.IntN(2) == 0 {
			m.killOne(lockHolders(), true)
			continue
		}
		m.mu.Lock()
		var pids []int
		if len(m.running) > 0 {
			pids = []int{m.running[r.IntN(len(m.running))].Process.Pid}
		}
		m.mu.Unlock()
		m.killOne(pids, false)
	}
}

// killOne kills the first of these processes that is one of the programs.
func (m *massacre) killOne(pids []int, locked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.running, func(cmd *exec.Cmd) bool { return slices.Contains(pids, cmd.Process.Pid) })
	if i >= 0 && m.running[i].Process.Kill() == nil && locked {
		m.hit = append(m.hit, m.running[i])
	}
}

// lockHolders returns the processes that hold a lock.
func lockHolders() []int {
	b, _ := os.ReadFile("/proc/locks")
	var pids []int
	for line := range strings.Lines(string(b)) {
		// A holder: "1: FLOCK  ADVISORY  WRITE <pid> ...". A waiting one: "1: -> FLOCK ..."
		f := strings.Fields(line)
		var pid int
		if len(f) > 4 && f[1] == "FLOCK" {
			if _, err := fmt.Sscan(f[4], &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// holds expects that the attachment holds the address in the store.
func (m *massacre) holds(t *testing.T, c claim, a netip.Addr) {
	l, err := m.store(t).Get(t.Context(), a)
	if err != nil || !slices.Equal(holderIDs(l), []string{c.id}) {
		t.Errorf("%s was told %s, and recorded is %+v, %v", c.id, a, l, err)
	}
}

// told notes that the attachment was told an address.
func (m *massacre) told(t *testing.T, c claim, a netip.Addr) {
	m.holds(t, c, a)
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, ok := m.living[a]; ok && other != c.id {
		t.Errorf("%s has %s and is told to %s", other, a, c.id)
	}
	m.living[a] = c.id
}

// add repeats the ADD until it was told an address. After a failed ADD, a runtime sends a DEL or another ADD.
func (m *massacre) add(t *testing.T, r *rand.Rand, c claim) (told netip.Addr, ok bool) {
	for {
		out, err := m.run(c.plugin("ADD", ""))
		all, unread := printed(out)
		if unread == nil {
			// This counts even if the program was killed afterwards: what was printed is recorded.
			m.told(t, c, all[0])
		}
		switch {
		case err == nil && unread == nil:
			return all[0], true
		case !errors.Is(err, errKilled):
			t.Errorf("ADD of %s: %v %v", c.id, err, unread)
			return told, false
		}
		m.count(func() {
			m.killed.add++
			if unread == nil {
				m.killed.printed++
			}
		})
		if r.IntN(2) == 0 {
			m.del(t, c)
			return told, false
		}
	}
}

func (m *massacre) count(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// del repeats the DEL until it succeeds.
func (m *massacre) del(t *testing.T, c claim) {
	m.count(func() { maps.DeleteFunc(m.living, func(_ netip.Addr, id string) bool { return id == c.id }) })
	for {
		_, err := m.run(c.plugin("DEL", ""))
		if err == nil {
			return
		}
		if !errors.Is(err, errKilled) {
			t.Errorf("DEL of %s: %v", c.id, err)
			return
		}
		m.count(func() { m.killed.del++ })
	}
}

// live attaches and detaches until there were enough kills. In the end it stays attached.
func (m *massacre) live(t *testing.T, worker int) {
	r := rand.New(rand.NewPCG(m.seed, uint64(worker)))
	for i := 0; !t.Failed(); i++ {
		c := m.claim(fmt.Sprintf("w%d-%d", worker, i), fmt.Sprintf("pod%d", worker))
		a, ok := m.add(t, r, c)
		if !ok {
			continue
		}
		if r.IntN(4) == 0 {
			if b, ok := m.add(t, r, c); ok && a != b {
				t.Errorf("%s was told %s, and then %s", c.id, a, b)
			} else if !ok {
				continue
			}
		}
		m.holds(t, c, a)
		if m.done() {
			return
		}
		m.del(t, c)
	}
}

// Everything that an ADD printed is recorded, whatever else is killed at whatever time. No address is lost.
func TestIPAMKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	const workers, addresses = 50, 60
	kills := times(60)
	m := &massacre{pool: newPool(t, ranges(addresses)), seed: seeded(t), want: kills, living: map[netip.Addr]string{}}
	t.Logf("seed %d", m.seed)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() { m.live(t, i) })
	}
	ended := make(chan struct{})
	go func() { defer close(ended); m.kill(rand.New(rand.NewPCG(m.seed, workers))) }()
	all.Wait()
	if t.Failed() {
		m.count(func() { m.want = 0 })
	}
	<-ended
	m.sound(t)
	m.onlyLiving(t)
	for _, id := range m.living {
		must(t, m.claim(id, "").del())
	}
	m.sound(t)
	m.allCanBeGiven(t, addresses)
	m.nothingElse(t)
	total.anywhere.Add(int64(m.killed.add + m.killed.del))
	t.Logf("%d ADDs and %d DELs of %d programs killed in %s, %d with the lock of the store, %d after they had printed",
		m.killed.add, m.killed.del, m.ran, time.Since(begin).Round(time.Millisecond), m.killed.locked, m.killed.printed)
}

// onlyLiving expects that exactly the addresses that were told are held.
func (m *massacre) onlyLiving(t *testing.T) {
	t.Helper()
	held := map[netip.Addr]string{}
	for _, l := range m.list(t) {
		if l.State == lease.Held {
			held[l.Address] = strings.Join(holderIDs(l), " and ")
		}
	}
	for a, id := range m.living {
		if held[a] != id {
			t.Errorf("%s was told %s, which is held by %q", id, a, held[a])
		}
	}
	if len(held) != len(m.living) {
		t.Errorf("%d are held, %d were told", len(held), len(m.living))
	}
}

// If many ADDs come at once, each gets an address of its own.
func TestIPAMCrowd(t *testing.T) {
	const crowd = 200 // This test runs alone, so that its times are its own.
	p := newPool(t, plain+`"ranges": [[{"subnet": "10.7.0.0/24"}]]`)
	p.programs = released
	took := make([]time.Duration, crowd)
	given := make([]netip.Addr, crowd)
	var all sync.WaitGroup
	for i := range crowd {
		c := p.claim(fmt.Sprintf("c%d", i), fmt.Sprintf("pod%d", i))
		all.Go(func() {
			begin := time.Now()
			a, err := c.add()
			took[i] = time.Since(begin)
			if err != nil {
				t.Error(err)
				return
			}
			given[i] = a[0]
		})
	}
	all.Wait()
	slices.SortFunc(given, netip.Addr.Compare)
	if n := len(slices.Compact(given)); n != crowd {
		t.Errorf("%d addresses for %d attachments", n, crowd)
	}
	p.sound(t)
	slices.Sort(took)
	total.crowd = fmt.Sprintf("%d ADDs at once: p50 %s, p99 %s, max %s", crowd, took[crowd/2], took[crowd*99/100], took[crowd-1])
}
