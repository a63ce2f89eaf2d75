package main

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/relink-cni/relink/pkg/pool"
)

// requests are what the API server has been asked, as it counts itself.
type requests struct {
	// writes are changes. refused are requests for a change that the API has refused, because another node was first. busy are requests
	// that it has not looked at. reads are the others but watches, and lists are those of them for many objects.
	writes, refused, busy, reads, lists, watches int
	// events are those that it has sent to watches.
	events int
}

func (r requests) since(before requests) requests {
	return requests{r.writes - before.writes, r.refused - before.refused, r.busy - before.busy, r.reads - before.reads, r.lists - before.lists, r.watches - before.watches, r.events - before.events}
}

// counted returns the requests about the API groups so far.
func (s *server) counted(groups ...string) (r requests, err error) {
	said, err := s.Ask(http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return r, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(said))
	if err != nil {
		return r, err
	}
	each := func(name string, count func(labels map[string]string, n int)) {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if slices.Contains(groups, labels["group"]) {
				count(labels, int(m.GetCounter().GetValue()))
			}
		}
	}
	each("apiserver_request_total", func(labels map[string]string, n int) {
		switch verb, code := labels["verb"], labels["code"]; {
		case code == strconv.Itoa(http.StatusTooManyRequests):
			r.busy += n
		case verb == "GET":
			r.reads += n
		case verb == "LIST":
			r.reads += n
			r.lists += n
		case verb == "WATCH":
			r.watches += n
		case strings.HasPrefix(code, "2"):
			r.writes += n
		default:
			r.refused += n
		}
	})
	each("apiserver_watch_events_total", func(_ map[string]string, n int) { r.events += n })
	return r, nil
}

// ofPools are the requests about pools, blocks and claims so far.
func (s *server) ofPools() (requests, error) { return s.counted(pool.Group) }

// whenQuiet returns the requests when nobody has asked for a change for a while.
func (s *server) whenQuiet() (r requests, err error) {
	const quiet = 2 * time.Second
	for {
		before := r
		if r, err = s.ofPools(); err != nil || r.writes == before.writes {
			return r, err
		}
		time.Sleep(quiet)
	}
}
