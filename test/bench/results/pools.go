package results

import "fmt"

// Pools has what pools cost that nodes share.
type Pools struct {
	Burst []PoolBurst `json:"burst"`
	// Attach compares ADD and DEL of two kinds of stores: rows 0 and 1, and rows 2 and 3.
	Attach []Attach    `json:"attach"`
	Scale  []PoolScale `json:"scale"`
}

// PoolBurst has what it takes to give addresses to pods of ten nodes that start at once.
type PoolBurst struct {
	Who     string  `json:"who"`
	Pods    int     `json:"pods"`
	Seconds float64 `json:"seconds"`
	// PodMS is the time in milliseconds by the number of pods. Ratio compares it with the first row.
	PodMS float64 `json:"podMS"`
	Ratio float64 `json:"ratio"`
	// Add is the time from a pod's first ADD to its address.
	Add  Spread `json:"add"`
	ADDs int    `json:"adds"`
	// Writes are changes of the API, Refused those that it has refused, Reads are other requests.
	Writes  int `json:"writes"`
	Refused int `json:"refused"`
	Reads   int `json:"reads"`
}

// PoolScale has what a cluster costs whose nodes share a pool: first while all pods start, then while nothing happens.
type PoolScale struct {
	Nodes   int     `json:"nodes"`
	Pods    int     `json:"pods"`
	Blocks  int     `json:"blocks"`
	Seconds float64 `json:"seconds"`
	ADDs    int     `json:"adds"`
	// Writes, Refused and Reads are as in PoolBurst. Busy are requests that the API was too busy for. Lists are those of Reads for many objects. Events are what the API has sent to
	// watches.
	Writes  int `json:"writes"`
	Refused int `json:"refused"`
	Busy    int `json:"busy"`
	Reads   int `json:"reads"`
	Lists   int `json:"lists"`
	Events  int `json:"events"`
	// APICPU and EtcdCPU are seconds of processor time, APIMB and EtcdMB the most memory in MiB.
	APICPU  float64 `json:"apiCPU"`
	EtcdCPU float64 `json:"etcdCPU"`
	APIMB   float64 `json:"apiMB"`
	EtcdMB  float64 `json:"etcdMB"`
	// IdleReads, IdleWatches and IdleEvents are by minute and node, IdleWrites by minute. IdleAPICPU and IdleEtcdCPU are processor
	// seconds by second.
	IdleReads   float64 `json:"idleReads"`
	IdleWatches float64 `json:"idleWatches"`
	IdleEvents  float64 `json:"idleEvents"`
	IdleWrites  float64 `json:"idleWrites"`
	IdleAPICPU  float64 `json:"idleAPICPU"`
	IdleEtcdCPU float64 `json:"idleEtcdCPU"`
}

// PoolBurstTable returns the table of Pools.Burst in Markdown.
func (r Results) PoolBurstTable() string {
	t := table("who gives the addresses", "pods", "all have one after", "time per pod", "ratio", "from a pod's first ADD to its address", "ADDs", "writes", "refused", "reads")
	for _, b := range r.Pools.Burst {
		fmt.Fprintf(t, "| %s | %d | %.2f s | %.2f ms | %.2f | %s ms | %d | %d | %d | %d |\n", b.Who, b.Pods, b.Seconds, b.PodMS, b.Ratio, b.Add, b.ADDs, b.Writes, b.Refused, b.Reads)
	}
	return t.String()
}

// PoolAttachTable returns the table of Pools.Attach in Markdown.
func (r Results) PoolAttachTable() string {
	return Results{Attach: r.Pools.Attach}.AttachTable()
}

// PoolScaleTable returns the table of Pools.Scale in Markdown, as far as it is about pods that start.
func (r Results) PoolScaleTable() string {
	t := table("nodes", "pods", "all have an address after", "ADDs", "blocks", "writes", "refused", "too busy for", "reads", "of these lists", "events per agent",
		"API server CPU", "peak", "etcd CPU", "peak")
	for _, s := range r.Pools.Scale {
		fmt.Fprintf(t, "| %d | %d | %.1f s | %d | %d | %d | %d | %d | %d | %d | %.1f | %.1f s | %.0f MiB | %.1f s | %.0f MiB |\n", s.Nodes, s.Pods, s.Seconds, s.ADDs, s.Blocks,
			s.Writes, s.Refused, s.Busy, s.Reads, s.Lists, float64(s.Events)/float64(s.Nodes), s.APICPU, s.APIMB, s.EtcdCPU, s.EtcdMB)
	}
	return t.String()
}

// PoolIdleTable returns the table of Pools.Scale in Markdown, as far as it is about nodes with nothing to do.
func (r Results) PoolIdleTable() string {
	t := table("nodes", "reads per node and minute", "watches begun per node and minute", "events per node and minute", "writes per minute", "API server CPU", "etcd CPU")
	for _, s := range r.Pools.Scale {
		fmt.Fprintf(t, "| %d | %.2f | %.2f | %.2f | %.1f | %.1f %% of a core | %.1f %% of a core |\n", s.Nodes, s.IdleReads, s.IdleWatches, s.IdleEvents, s.IdleWrites,
			100*s.IdleAPICPU, 100*s.IdleEtcdCPU)
	}
	return t.String()
}
