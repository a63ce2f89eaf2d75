package kube

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/flowcontrol"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

// Each answer of the API, and what becomes of an event then.
func TestAnswers(t *testing.T) {
	get, post := "GET web-0", "POST events"
	for name, test := range map[string]struct {
		// answers are those to the first requests. 0 is the usual one.
		answers  []int
		requests []string
		result   string
		log      string
	}{
		"as usual":                    {nil, []string{get, post}, sent, `^$`},
		"the pod is gone":             {[]int{404}, []string{get}, podGone, `^$`},
		"its namespace is gone":       {[]int{0, 404}, []string{get, post}, podGone, `^$`},
		"the answer was lost":         {[]int{0, 500, 409}, []string{get, post, post}, sent, `does not answer.*no, because 500"\n.*answers again`},
		"it is restarted":             {[]int{503, 500, 0}, []string{get, get, get, post}, sent, `does not answer.*503"\n.*answers again`},
		"the token is over":           {[]int{401}, []string{get, get, post}, sent, `does not answer.*401"\n.*answers again`},
		"too many requests":           {[]int{0, 429}, []string{get, post, post}, sent, `does not answer.*429"\n.*answers again`},
		"pods must not be looked at":  {[]int{403}, []string{get}, refused, `^\S+ level=WARN msg="the Kubernetes API refuses an event" error="no, because 403"\n$`},
		"events must not be written":  {[]int{0, 403}, []string{get, post}, refused, `refuses an event" error="no, because 403"`},
		"the API does not like it":    {[]int{0, 422}, []string{get, post}, refused, `refuses an event" error="no, because 422"`},
		"it is not to be found twice": {[]int{500, 404}, []string{get, get}, podGone, `does not answer.*500"\n.*answers again`},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			r, s, log := newRecorder(t, func(string) int {
				if n := int(asked.Add(1)); n <= len(test.answers) {
					return test.answers[n-1]
				}
				return 0
			}, nil)
			r.Record(podOf("web-0"), true, "InterfaceLost", "eth0 is lost")
			runRecorder(t, r, map[string]uint64{test.result: 1})
			if got := s.all(); !slices.Equal(got, test.requests) {
				t.Errorf("requests %q, want %q", got, test.requests)
			}
			if !regexp.MustCompile(`(?s)` + test.log).MatchString(log.String()) {
				t.Errorf("the log is\n%s, want %s", log, test.log)
			}
		})
	}
}

// An API that has just come back refuses everything until it knows the roles. That is no refusal.
func TestAnAPIThatStarts(t *testing.T) {
	var asked atomic.Int64
	r, s, _ := newRecorder(t, func(string) int {
		return []int{403, 403, 0, 0}[min(asked.Add(1)-1, 3)]
	}, func(r *Recorder) { r.awayAt = time.Now() })
	r.Record(podOf("web-0"), true, "InterfaceLost", "eth0 is lost")
	runRecorder(t, r, map[string]uint64{sent: 1})
	if got := s.all(); len(got) != 4 {
		t.Errorf("requests %q", got)
	}
}

// A pod of another UID, or of none, gets no event.
func TestAnotherPod(t *testing.T) {
	r, s, _ := newRecorder(t, noFault, nil)
	for _, pod := range []attachment.Pod{
		{Namespace: "shop", Name: "web-0", UID: "of-another"}, {Namespace: "shop", Name: "web-0"}, {Namespace: "shop", Name: "../web-0", UID: "u"}, {},
	} {
		r.Record(pod, true, "InterfaceLost", "eth0 is lost")
	}
	runRecorder(t, r, map[string]uint64{podGone: 1, noUID: 3})
	if got := s.all(); !slices.Equal(got, []string{"GET web-0"}) {
		t.Errorf("requests %q", got)
	}
}

// The same event again is counted in the API. If the API has forgotten it, it is written anew.
func TestAgain(t *testing.T) {
	r, s, _ := newRecorder(t, noFault, nil)
	lost := func() { r.Record(podOf("web-0"), true, "InterfaceLost", "eth0 is lost") }
	for range 3 {
		lost()
	}
	runRecorder(t, r, map[string]uint64{sent: 3})
	if got := s.counts(); !slices.Equal(got, []int32{3}) {
		t.Errorf("the events have the counts %d", got)
	}
	s.mu.Lock()
	clear(s.events)
	s.mu.Unlock()
	lost()
	runRecorder(t, r, map[string]uint64{sent: 4})
	if got := s.counts(); !slices.Equal(got, []int32{4}) {
		t.Errorf("the events have the counts %d", got)
	}
}

func (s *server) counts() (counts []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		counts = append(counts, e.Count)
	}
	return counts
}

// A pod whose interface comes and goes all the time gets some events, and then no more for a while. Other pods get theirs.
func TestTooMany(t *testing.T) {
	r, s, _ := newRecorder(t, noFault, nil)
	r.limiter = unlimited{r.limiter}
	for i := range 30 {
		r.Record(podOf("web-0"), false, "InterfaceRestored", fmt.Sprintf("eth0 was lost for %ds", i))
	}
	r.Record(podOf("web-1"), false, "InterfaceRestored", "eth0 was lost for 3s")
	runRecorder(t, r, map[string]uint64{sent: 26, rateLimited: 5})
	combined := 0
	for _, e := range s.events {
		if strings.HasPrefix(e.Message, "(combined from similar events): ") {
			combined++
		}
	}
	if len(s.events) != 11 || combined != 1 {
		t.Errorf("%d events, %d of them combined", len(s.events), combined)
	}
}

// unlimited waits for nothing.
type unlimited struct{ flowcontrol.RateLimiter }

func (unlimited) Wait(context.Context) error { return nil }

// The API hangs. Nobody waits for it, and the newest events are kept.
func TestAnAPIThatHangs(t *testing.T) {
	hangs, hanging := make(chan struct{}), make(chan struct{}, 1)
	r, s, _ := newRecorder(t, func(string) int {
		select {
		case hanging <- struct{}{}:
		default:
		}
		<-hangs
		return 0
	}, nil)
	t.Cleanup(func() { // Also if the test fails: the server waits for its requests.
		select {
		case <-hangs:
		default:
			close(hangs)
		}
	})
	go r.Run(t.Context())
	r.Record(podOf("web-0"), true, "InterfaceLost", "eth0 is lost")
	<-hanging
	began := time.Now()
	for i := range maxQueued + 10 {
		r.Record(podOf(fmt.Sprintf("many-%d", i)), true, "InterfaceLost", "eth0 is lost")
	}
	if took := time.Since(began); took >= objects.Limit { // Whoever waits for the API waits that long.
		t.Errorf("events took %s while the API hung", took)
	}
	if n := r.Counts()[queueFull]; n != 10 {
		t.Errorf("%d events were dropped, want 10", n)
	}
	// The limit of requests holds when it answers again: 40 at once, and 20 a second.
	before, start := len(s.all()), time.Now()
	close(hangs)
	await(t, "what comes at once", func() bool { return len(s.all()) >= burst })
	time.Sleep(200 * time.Millisecond) // Without the limit, all would come.
	n := len(s.all()) - before
	if took := time.Since(start); float64(n) > burst+requestsPerSecond*took.Seconds() {
		t.Errorf("%d requests within %s", n, took)
	}
	if got := s.all(); got[2] != "GET many-10" {
		t.Errorf("the oldest event that waits is %s", got[2])
	}
}

// Events that are older than the API keeps them are not written.
func TestTooOld(t *testing.T) {
	now := time.Now()
	r, s, _ := newRecorder(t, noFault, func(r *Recorder) { r.clock = func() time.Time { return now } })
	r.Record(podOf("web-0"), true, "InterfaceLost", "eth0 is lost")
	now = now.Add(maxAge + time.Second)
	r.Record(podOf("web-1"), true, "InterfaceLost", "eth0 is lost")
	r.Record(podOf("web-1"), true, "InterfaceLost", strings.Repeat("ä", maxMessage))
	runRecorder(t, r, map[string]uint64{expired: 1, sent: 2})
	if got := s.all(); !slices.Equal(got, []string{"GET web-1", "POST events", "GET web-1", "POST events"}) {
		t.Errorf("requests %q", got)
	}
	// Two events at the same time have two names. A long message is cut where a character ends.
	for name, e := range s.events {
		if len(s.events) != 2 || !strings.HasPrefix(name, "web-1.") || len(e.Message) > maxMessage || strings.ContainsRune(e.Message, '\uFFFD') {
			t.Errorf("%d events, one is %s with %d bytes: %s", len(s.events), name, len(e.Message), e.Message)
		}
	}
}

// docs/monitoring.md says of each result what it means.
func TestTheDocumentHasEachResult(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRecorder(t, noFault, nil)
	o, _, _ := newOwners(t, "", nil)
	for metric, counts := range map[string]map[string]uint64{"relink_pod_events_total": r.Counts(), "relink_condition_patches_total": NewConditions(o, r.log).Counts()} {
		_, table, _ := strings.Cut(string(text), "| `result` in `"+metric+"` |")
		table, _, _ = strings.Cut(table, "\n\n")
		for result := range counts {
			if !strings.Contains(table, "`"+result+"`") {
				t.Errorf("docs/monitoring.md does not have the result %s of %s", result, metric)
			}
		}
	}
}
