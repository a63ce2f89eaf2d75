package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Results are the measurements of one or several runs. A run that measures only one table keeps the others.
type Results struct {
	// System names the kernel, the number of processors and the version of Go of the last run.
	System string   `json:"system"`
	Attach []Attach `json:"attach"`
	// AttachCrowded has processor times, on a node with many links of others.
	AttachCrowded []Attach  `json:"attachCrowded"`
	IPAM          []IPAM    `json:"ipam"`
	Restore       []Restore `json:"restore"`
	Move          []Move    `json:"move"`
	Agent         []Agent   `json:"agent"`
	Returns       []Return  `json:"returns"`
	// Recording is that of an agent that records pods of other programs.
	Recording []Recording `json:"recording"`
	Audit     []Audit     `json:"audit"`
	Pools     Pools       `json:"pools"`
}

// Spread is the median and the 90th percentile of a time, in milliseconds.
type Spread struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
}

func (s Spread) String() string { return fmt.Sprintf("%.2f (%.2f)", s.Median, s.P90) }

// Attach has the times of an interface plugin's ADD and DEL. The ratios compare it with the first row.
type Attach struct {
	Who      string  `json:"who"`
	Add      Spread  `json:"add"`
	AddRatio float64 `json:"addRatio"`
	Del      Spread  `json:"del"`
	DelRatio float64 `json:"delRatio"`
}

// IPAM has the times of ADD and DEL of host-local and of relink-ipam while Held addresses are held.
type IPAM struct {
	Held     int     `json:"held"`
	TheirAdd Spread  `json:"theirAdd"`
	Add      Spread  `json:"add"`
	AddRatio float64 `json:"addRatio"`
	Growth   float64 `json:"growth"` // The ratio of relink-ipam's ADD to its ADD with no address held.
	TheirDel Spread  `json:"theirDel"`
	Del      Spread  `json:"del"`
	DelRatio float64 `json:"delRatio"`
}

// Restore has the time in milliseconds that each way takes for one sandbox after all Sandboxes lost their interface.
type Restore struct {
	Sandboxes int     `json:"sandboxes"`
	OnParent  int     `json:"onParent"` // The number of sandboxes that share a parent.
	Commands  float64 `json:"commands"` // (a)
	Library   float64 `json:"library"`  // (b)
	Batches   float64 `json:"batches"`  // (c)
	Relink    float64 `json:"relink"`   // (d)
	ToBatches float64 `json:"toBatches"`
	ToLibrary float64 `json:"toLibrary"`
	ToCommand float64 `json:"toCommands"`
	PeakMB    int64   `json:"peakMB"` // The memory of relink, in MiB.
	// CheckS and StatusS are the times of relink check and relink status for all sandboxes, in seconds.
	CheckS  float64 `json:"checkS"`
	StatusS float64 `json:"statusS"`
}

// Move has what pods notice while all of them move to another uplink and back.
type Move struct {
	Way  string `json:"way"`
	Pods int    `json:"pods"`
	// PingMS is the longest gap of any pod: the time from the last answered ping before a lost one to the first answered one
	// after it. PingMedianMS is the median of the pods' longest ones. Both are in milliseconds, and 0 if no ping was lost.
	// LateMS is the longest time between two rounds of pings.
	PingMS       float64 `json:"pingMS"`
	PingMedianMS float64 `json:"pingMedianMS"`
	LateMS       float64 `json:"lateMS"`
	// Lost is how many of the Sent pings were not answered.
	Lost int `json:"lost"`
	Sent int `json:"sent"`
	// StreamMS is the longest time between two arrivals of any TCP stream, in milliseconds.
	StreamMS float64 `json:"streamMS"`
	// TookS is how long a move of all pods took, in seconds.
	TookS float64 `json:"tookS"`
}

// Agent has what relink-agent takes while nothing happens.
type Agent struct {
	Pods int    `json:"pods"`
	When string `json:"when"`
	// Resident is all memory in use: Anonymous is its own, File is the program and what else is mapped from files. Peak is the
	// most that was resident since the start. All are in MiB.
	Resident  float64 `json:"resident"`
	Anonymous float64 `json:"anonymous"`
	File      float64 `json:"file"`
	Peak      float64 `json:"peak"`
	// CPU is the processor time in milliseconds per second.
	CPU float64 `json:"cpu"`
}

// Return has what relink-agent takes when the parent of all Pods is back.
type Return struct {
	Pods int `json:"pods"`
	// CommandS and AgentS are the times until all pods are whole, by relink restore and by the agent, in seconds. Ratio is that of a
	// round. ReadyS is the time from the agent's start until it is ready.
	CommandS float64 `json:"commandS"`
	AgentS   float64 `json:"agentS"`
	Ratio    float64 `json:"ratio"`
	ReadyS   float64 `json:"readyS"`
	// FirstCPU and AgainCPU are the processor times of the agent in milliseconds a pod: until it has read all at its start, and again
	// after it has restored all. ChangeCPU is that for a change in one pod.
	FirstCPU  float64 `json:"firstCPU"`
	AgainCPU  float64 `json:"againCPU"`
	ChangeCPU float64 `json:"changeCPU"`
}

// Audit has what relink audit and relink check take, as whole processes.
type Audit struct {
	Sandboxes int `json:"sandboxes"`
	Leases    int `json:"leases"`
	// AuditS and CheckS are times in seconds, AuditMB and CheckMB the most that was resident, in MiB.
	AuditS  Seconds `json:"audit"`
	AuditMB int64   `json:"auditMB"`
	CheckS  Seconds `json:"check"`
	CheckMB int64   `json:"checkMB"`
}

// Seconds are the median and the longest of some times, in seconds.
type Seconds struct {
	Median  float64 `json:"median"`
	Longest float64 `json:"longest"`
}

func (s Seconds) String() string { return fmt.Sprintf("%.2f s (%.2f s)", s.Median, s.Longest) }

// Load reads the file. A missing file gives empty results.
func Load(path string) (Results, error) {
	var r Results
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read results: %w", err)
	}
	return r, nil
}

// Save writes the file.
func (r Results) Save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// AttachTable returns the table of Attach in Markdown.
func (r Results) AttachTable() string { return attachTable(r.Attach) }

// AttachCrowdedTable returns the table of AttachCrowded in Markdown.
func (r Results) AttachCrowdedTable() string { return attachTable(r.AttachCrowded) }

func attachTable(rows []Attach) string {
	t := table("who", "ADD", "ratio", "DEL", "ratio")
	for _, a := range rows {
		fmt.Fprintf(t, "| %s | %s | %.2f | %s | %.2f |\n", a.Who, a.Add, a.AddRatio, a.Del, a.DelRatio)
	}
	return t.String()
}

// IPAMTable returns the table of IPAM in Markdown.
func (r Results) IPAMTable() string {
	t := table("addresses held", "host-local ADD", "relink-ipam ADD", "ratio", "of relink-ipam at 0", "host-local DEL", "relink-ipam DEL", "ratio")
	for _, i := range r.IPAM {
		fmt.Fprintf(t, "| %d | %s | %s | %.3f | %.2f | %s | %s | %.3f |\n", i.Held, i.TheirAdd, i.Add, i.AddRatio, i.Growth, i.TheirDel, i.Del, i.DelRatio)
	}
	return t.String()
}

// RestoreTable returns the table of Restore in Markdown.
func (r Results) RestoreTable() string {
	t := table("sandboxes", "on a parent", "(a) ip commands", "(b) library calls", "(c) bare batches", "(d) relink restore",
		"d/c", "b/d", "a/d", "peak memory of d", "relink check", "relink status")
	for _, s := range r.Restore {
		fmt.Fprintf(t, "| %d | %d | %.2f | %.3f | %.3f | %.3f | %.2f | %.1f | %.0f | %d MB | %.2f s | %.2f s |\n", s.Sandboxes, s.OnParent,
			s.Commands, s.Library, s.Batches, s.Relink, s.ToBatches, s.ToLibrary, s.ToCommand, s.PeakMB, s.CheckS, s.StatusS)
	}
	return t.String()
}

// MoveTable returns the table of Move in Markdown.
func (r Results) MoveTable() string {
	t := table("pods", "way", "pings lost", "longest gap of a ping", "median of the pods", "longest gap of a stream", "requests late by", "all pods moved in")
	gap := func(ms float64) string {
		if ms == 0 {
			return "none"
		}
		return fmt.Sprintf("%.0f ms", ms)
	}
	for _, m := range r.Move {
		fmt.Fprintf(t, "| %d | %s | %d of %d | %s | %s | %.0f ms | %.0f ms | %.1f s |\n", m.Pods, m.Way,
			m.Lost, m.Sent, gap(m.PingMS), gap(m.PingMedianMS), m.StreamMS, m.LateMS, m.TookS)
	}
	return t.String()
}

// AgentTable returns the table of Agent in Markdown.
func (r Results) AgentTable() string {
	t := table("pods", "when", "resident", "its own", "program and files", "peak", "CPU time per second")
	for _, a := range r.Agent {
		fmt.Fprintf(t, "| %d | %s | %.1f MiB | %.1f MiB | %.1f MiB | %.1f MiB | %.2f ms |\n", a.Pods, a.When, a.Resident, a.Anonymous, a.File, a.Peak, a.CPU)
	}
	return t.String()
}

// ReturnTable returns the table of Returns in Markdown.
func (r Results) ReturnTable() string {
	t := table("pods", "relink restore", "relink-agent", "ratio", "ready after", "CPU of the first reading, a pod", "CPU of reading again, a pod", "CPU of a change in one pod")
	for _, a := range r.Returns {
		fmt.Fprintf(t, "| %d | %.2f s | %.2f s | %.2f | %.2f s | %.2f ms | %.2f ms | %.2f ms |\n", a.Pods, a.CommandS, a.AgentS, a.Ratio, a.ReadyS, a.FirstCPU, a.AgainCPU, a.ChangeCPU)
	}
	return t.String()
}

// Recording is what it takes to record pods that other programs attach, beside Pods that stay.
type Recording struct {
	Pods int `json:"pods"`
	// MedianS and P99S are the seconds from the end of an ADD until its pod is recorded. CPU is the agent's processor time for a pod that comes and
	// a pod that goes, in milliseconds.
	MedianS float64 `json:"medianSeconds"`
	P99S    float64 `json:"p99Seconds"`
	CPU     float64 `json:"cpuMillisecondsPerPod"`
	// Ratio is CPU by what macvlan and host-local take for an ADD and a DEL.
	Ratio float64 `json:"cpuRatio"`
	// Anonymous is the agent's own memory in MiB afterwards.
	Anonymous float64 `json:"anonymousMiB"`
}

// RecordingTable returns the table of Recording in Markdown.
func (r Results) RecordingTable() string {
	t := table("pods that stay", "ADD to checkpoint, median", "99 of 100", "CPU for 1,000 pods made and ended", "CPU at 10 a second", "of an ADD and a DEL of the stock plugins", "its own memory")
	for _, a := range r.Recording {
		fmt.Fprintf(t, "| %d | %.2f s | %.2f s | %.2f s | %.1f%% | %.2f | %.1f MiB |\n", a.Pods, a.MedianS, a.P99S, a.CPU, a.CPU, a.Ratio, a.Anonymous)
	}
	return t.String()
}

// AuditTable returns the table of Audit in Markdown.
func (r Results) AuditTable() string {
	t := table("sandboxes", "leases", "relink audit", "peak memory", "relink check", "peak memory")
	for _, a := range r.Audit {
		fmt.Fprintf(t, "| %d | %d | %s | %d MiB | %s | %d MiB |\n", a.Sandboxes, a.Leases, a.AuditS, a.AuditMB, a.CheckS, a.CheckMB)
	}
	return t.String()
}

// table begins a table with its header.
func table(columns ...string) *strings.Builder {
	var t strings.Builder
	fmt.Fprintf(&t, "| %s |\n%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	return &t
}
