package main

import (
	"bytes"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/guard"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

// part is a part of the screen: so many things, which begin with a word of their own, and the noun for those that are
// left out.
type part struct {
	things     int
	word, noun string
}

// anyStatus returns a status with any amount of everything, and its parts.
func anyStatus(t *rapid.T) (nodeStatus, []part) {
	some := func(name string) int {
		return rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 30)).Draw(t, name)
	}
	named := func(n int, word string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%s-%d says why", word, i))
		}
		return all
	}
	now := nodeStatus{Time: time.Now(), Summary: status.Summary{Attachments: map[change.State]int{}, Names: map[attachment.Key]string{}}, dir: "/run"}
	parts := []part{
		{some("parents"), "parent", "parent"}, {some("causes"), "cause", "cause"}, {some("problems"), "remark", "remark"}, {some("pools"), "pool", "pool"},
		{some("failures"), "failed: ns/failure", "failure"}, {some("bases"), "base", "base"}, {some("tasks"), "task", "task"},
	}
	for _, state := range []change.State{restore.AsRecorded, restore.ToRestore, restore.ToRepair, restore.Waiting, status.NoLink, restore.Blocked, restore.SandboxGone} {
		now.Attachments[state] = some(string(state)) * 1000
	}
	for _, name := range named(parts[0].things, parts[0].word) {
		now.Parents = append(now.Parents, restore.DeviceState{Name: strings.Fields(name)[0], Present: true})
	}
	for i, why := range named(parts[1].things, parts[1].word) {
		key := attachment.Key{ContainerID: fmt.Sprint(i), IfName: "eth0"}
		now.Names[key] = fmt.Sprintf("shop/web-%d", i)
		now.Causes = append(now.Causes, status.Cause{Reason: why, Attachments: []attachment.Key{key}, Pods: 1})
	}
	for _, what := range named(parts[6].things, parts[6].word) {
		now.ToDo = append(now.ToDo, status.ToDo{Subject: what, Advice: "relink restore"})
	}
	remarks := named(parts[2].things, parts[2].word)
	now.Problems, now.Notes = remarks[:len(remarks)/2], remarks[len(remarks)/2:]
	for i, name := range named(parts[3].things, parts[3].word) {
		if i%2 == 0 {
			now.Pools = append(now.Pools, fullSet{Network: strings.Fields(name)[0], SetUsage: lease.SetUsage{Size: big.NewInt(9)}})
		} else {
			now.PoolProblems = append(now.PoolProblems, name)
		}
	}
	if parts[4].things > 0 || rapid.Bool().Draw(t, "restored") {
		now.LastRestore = &checkpoint.LastRestore{StartedAt: now.Time, Counts: map[string]int{string(restore.Restored): 1}}
	}
	for i := range parts[4].things {
		now.LastRestore.Failed = append(now.LastRestore.Failed, checkpoint.FailedRestore{Pod: attachment.Pod{Namespace: "ns", Name: fmt.Sprintf("failure-%d", i)}})
	}
	switch n := parts[5].things; {
	case n > 0:
		now.Agent = &control.Status{Chains: []control.Chain{{Base: "whole", State: control.Whole}}}
		for i := range n {
			now.Agent.Chains = append(now.Agent.Chains, control.Chain{Base: fmt.Sprintf("base-%d", i), State: control.Lost, Reason: "it is gone"})
		}
		if rapid.Bool().Draw(t, "audited") {
			now.Agent.Audit = &control.Audit{Errors: 3, Problem: "the runtime hangs", Findings: map[string]int{"fine": 249, "lost interface": 3}}
		}
		if rapid.Bool().Draw(t, "paused") {
			now.Agent.Paused = &control.Pause{Reason: "a new driver, and a long story of why it is needed, which goes on and on"}
		}
	case rapid.Bool().Draw(t, "the agent hangs"):
		now.AgentProblem = control.ErrNoAnswer.Error()
	}
	if rapid.Bool().Draw(t, "guard") {
		now.Guard = &guard.View{Alive: rapid.Bool().Draw(t, "alive"), Step: guard.RunCommand}
	}
	return now, parts
}

// Whatever is wrong, the screen has 24 lines, and says of each part how much of it is not shown.
func TestTheScreenHas24Lines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, parts := anyStatus(t)
		width := rapid.SampledFrom([]int{0, 80, 120}).Draw(t, "width")
		var b bytes.Buffer
		now.write(&cli.Screen{Out: &printable.Writer{Output: &b}, Err: &b, Width: width, Colour: rapid.Bool().Draw(t, "colour")})
		text := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(b.String(), "")
		rows := 0
		for line := range strings.Lines(text) {
			rows++
			for columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > 0 && columns > width; columns -= width {
				rows++
			}
		}
		if rows > 24 {
			t.Fatalf("%d lines:\n%s", rows, text)
		}
		for _, p := range parts {
			if shown, left := accounted(text, p); shown+left != p.things {
				t.Fatalf("%d of %d: %s is shown, %d are said to be left out:\n%s", shown, p.things, p.noun, left, text)
			}
		}
	})
}

// accounted returns how many things of the part the screen shows, and how many it says that it leaves out.
func accounted(text string, p part) (shown, left int) {
	for i := range p.things {
		if regexp.MustCompile(`\b` + p.word + `-` + strconv.Itoa(i) + `\b`).MatchString(text) {
			shown++
		}
	}
	more := regexp.MustCompile(`(?m)^ +(?:and )?(\d+) ` + p.noun + `s?( more)?: relink status --verbose$`)
	for _, said := range more.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(said[1])
		left += n
	}
	return shown, left
}

// A screen with room shows as much as ever. A verbose one shows everything.
func TestTheScreenShowsWhatItCan(t *testing.T) {
	now := nodeStatus{Summary: status.Summary{Problems: []string{"torn-0", "torn-1", "torn-2", "torn-3", "torn-4", "torn-5", "torn-6"}}}
	for i := range 40 {
		now.Parents = append(now.Parents, restore.DeviceState{Name: fmt.Sprintf("eth%d", i), Present: true})
	}
	for _, verbose := range []bool{false, true} {
		var b bytes.Buffer
		now.write(&cli.Screen{Verbosity: cli.Verbosity{Verbose: verbose}, Out: &printable.Writer{Output: &b}, Err: &b})
		want := 6
		if verbose {
			want = 40
		}
		if got := strings.Count(b.String(), "eth"); got != want {
			t.Errorf("verbose %v: %d parents, want %d:\n%s", verbose, got, want, &b)
		}
		if says := strings.Contains(b.String(), "  and 1 remark more: relink status --verbose\n"); says == verbose {
			t.Errorf("verbose %v: the last remark:\n%s", verbose, &b)
		}
	}
}
