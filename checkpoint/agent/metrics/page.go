package metrics

import (
	"math/big"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the present state when somebody asks. It describes no metric beforehand: each stands where it is shown.
type collector func(page)

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(page{ch, nil}) }

// page takes metrics with these labels, names and values in turn.
type page struct {
	metrics chan<- prometheus.Metric
	labels  []string
}

// with returns the page for metrics that have these labels, too.
func (p page) with(labels ...string) page { return page{p.metrics, slices.Concat(p.labels, labels)} }

// value is what a metric shows. A bool is 1 or 0. A time is in seconds, and a zero one is not shown.
type value interface {
	int | int64 | uint64 | bool | time.Time | *big.Int
}

// gauge shows a value that rises and falls.
func gauge[V value](p page, name, help string, v V) { p.show(prometheus.GaugeValue, name, help, v) }

// counter shows a value that only rises.
func counter(p page, name, help string, v uint64) { p.show(prometheus.CounterValue, name, help, v) }

func (p page) show(kind prometheus.ValueType, name, help string, v any) {
	labels := prometheus.Labels{}
	for i := 0; i < len(p.labels); i += 2 {
		labels[p.labels[i]] = p.labels[i+1]
	}
	var number float64
	switch v := v.(type) {
	case int:
		number = float64(v)
	case int64:
		number = float64(v)
	case uint64:
		number = float64(v)
	case bool:
		if v {
			number = 1
		}
	case time.Time:
		if v.IsZero() {
			return
		}
		number = float64(v.UnixMicro()) / 1e6
	case *big.Int: // An IPv6 pool can have more addresses than a float64 can count exactly.
		number, _ = new(big.Float).SetInt(v).Float64()
	}
	p.metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), kind, number)
}
