package kubenode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// outageLimit is how long an outage may last. On a busy host, the restore alone took half a minute.
const outageLimit = 4 * time.Minute

// Outage is how long the parts of an outage took, on the clock of the machine.
type Outage struct {
	// Lost is when the first NIC was gone, Back when all NICs were there again.
	Lost, Back time.Time
	// Whole is when the last pod had its interface up, with its addresses and default routes.
	Whole time.Time
	// Carrier is when the first NIC had its carrier again.
	Carrier time.Time
	// First and Last are when the first and the last pod answered the wire.
	First, Last time.Time
}

// String reports the parts, for people.
func (o Outage) String() string {
	order := "before"
	if o.Whole.After(o.Carrier) {
		order = "AFTER"
	}
	seconds := func(from, to time.Time) string { return fmt.Sprintf("%.2f s", to.Sub(from).Abs().Seconds()) }
	return fmt.Sprintf("NICs back %s after the loss\nall pods whole %s after the NICs, %s %s the carrier\nfirst answer %s, last answer %s after the carrier\n",
		seconds(o.Lost, o.Back), seconds(o.Back, o.Whole), seconds(o.Whole, o.Carrier), order,
		seconds(o.Carrier, o.First), seconds(o.Carrier, o.Last))
}

// Watch watches an outage of the NICs and of the pods, from before the loss to the last answer. wait returns when all pods have
// answered, or when ctx ends, or after four minutes.
func Watch(ctx context.Context, nics []string, pods map[string]Pod) (wait func() (Outage, error)) {
	ctx, stop := context.WithTimeout(ctx, outageLimit)
	w := watch{ctx: ctx, lost: make(chan struct{})}
	w.goes.Go(func() { w.watchNICs(nics) })
	for name, pod := range pods {
		w.goes.Go(func() { w.watchInterface(name, pod) })
		w.goes.Go(func() { w.watchAnswers(name, pod) })
	}
	return func() (Outage, error) {
		defer stop()
		w.goes.Wait()
		return w.outage, errors.Join(w.failures...)
	}
}

type watch struct {
	ctx  context.Context
	goes sync.WaitGroup
	// lost is closed when the NICs are gone.
	lost chan struct{}

	mu       sync.Mutex
	outage   Outage
	failures []error
}

// until looks again and again, until it sees what it looks for.
func (w *watch) until(what string, pause time.Duration, seen func() bool) {
	for !seen() {
		select {
		case <-w.ctx.Done():
			w.note(func() { w.failures = append(w.failures, fmt.Errorf("waited in vain: %s", what)) })
			return
		case <-time.After(pause):
		}
	}
}

func (w *watch) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// watchNICs looks often enough: a reload takes several tenths of a second here.
func (w *watch) watchNICs(nics []string) {
	const pause = 10 * time.Millisecond
	there := func(name string) bool { _, err := os.Stat("/sys/class/net/" + name); return err == nil }
	w.until("the NICs did not go", pause, func() bool {
		for _, name := range nics {
			if !there(name) {
				return true
			}
		}
		return false
	})
	w.note(func() { w.outage.Lost = time.Now() })
	close(w.lost)
	w.until("the NICs did not come back", pause, func() bool {
		for _, name := range nics {
			if !there(name) {
				return false
			}
		}
		return true
	})
	w.note(func() { w.outage.Back = time.Now() })
	w.until("no NIC has a carrier", pause, func() bool {
		for _, name := range nics {
			if b, err := os.ReadFile("/sys/class/net/" + name + "/carrier"); err == nil && string(b) == "1\n" {
				return true
			}
		}
		return false
	})
	w.note(func() { w.outage.Carrier = time.Now() })
}

// watchInterface looks from inside of the pod's namespace.
func (w *watch) watchInterface(name string, pod Pod) {
	const pause = 50 * time.Millisecond
	w.awaitLoss()
	err := fresh.In(pod.Sandbox.Netns, func() {
		w.until("pod "+name+" is not whole", pause, func() bool { return whole(pod.Addresses) })
	})
	w.note(func() {
		w.outage.Whole = latest(w.outage.Whole, time.Now())
		if err != nil {
			w.failures = append(w.failures, err)
		}
	})
}

// awaitLoss waits until the NICs are gone, or until there is no use in waiting.
func (w *watch) awaitLoss() {
	select {
	case <-w.lost:
	case <-w.ctx.Done():
	}
}

// whole says that this namespace has eth0 up, all addresses, and a default route for each kind of address. It looks at
// the routes first: they come last and cost least. The restore needs the same processor.
func whole(addresses []string) bool {
	for _, address := range addresses {
		if !hasDefaultRoute(address) {
			return false
		}
	}
	device, err := net.InterfaceByName("eth0")
	if err != nil || device.Flags&net.FlagUp == 0 {
		return false
	}
	have, err := device.Addrs()
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(addresses, func(want string) bool {
		return !slices.ContainsFunc(have, func(a net.Addr) bool { return strings.HasPrefix(a.String(), want+"/") })
	})
}

// hasDefaultRoute says that this namespace has a default route over eth0 for this kind of address.
func hasDefaultRoute(address string) bool {
	table, begin := "/proc/thread-self/net/route", "eth0\t00000000\t"
	if strings.Contains(address, ":") {
		table, begin = "/proc/thread-self/net/ipv6_route", strings.Repeat("0", 32)+" 00 "
	}
	routes, err := os.ReadFile(table)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(routes)) {
		if strings.HasPrefix(line, begin) && strings.Contains(line, "eth0") {
			return true
		}
	}
	return false
}

// watchAnswers asks until the pod answers. It waits longer for each answer than for the one before: on a busy host, an answer can
// take longer than the first limit.
func (w *watch) watchAnswers(name string, pod Pod) {
	const pause, least = 100 * time.Millisecond, 200 * time.Millisecond
	w.awaitLoss()
	start := time.Now()
	w.until("pod "+name+" does not answer", pause, func() bool {
		answer, err := Get(pod.Addresses[0], least+time.Since(start)/10)
		return err == nil && answer == name
	})
	now := time.Now()
	w.note(func() {
		w.outage.Last = latest(w.outage.Last, now)
		if w.outage.First.IsZero() || now.Before(w.outage.First) {
			w.outage.First = now
		}
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
