package metrics

import "github.com/prometheus/client_golang/prometheus"

// table has the metrics that are read together, when somebody asks.
type table []*prometheus.Desc

// metric is one of a table.
type metric struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func (t *table) gauge(name, help string, labels ...string) metric {
	*t = append(*t, prometheus.NewDesc(name, help, labels, nil))
	return metric{(*t)[len(*t)-1], prometheus.GaugeValue}
}

func (t *table) counter(name, help string, labels ...string) metric {
	m := t.gauge(name, help, labels...)
	m.kind = prometheus.CounterValue
	return m
}

// show shows a value of a metric.
type show func(m metric, value float64, labels ...string)

// collector reads the metrics of a table.
type collector struct {
	table
	read func(show)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.table {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.read(func(m metric, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.Desc, m.kind, value, labels...)
	})
}
