package selection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// ErrNothing says that a part of the selection matches nothing.
var ErrNothing = errors.New("matches nothing")

// ErrAmbiguous says that a name matches several pods or sandboxes. The message lists them.
var ErrAmbiguous = errors.New("matches several")

// Selection is what a command line names. The zero value names everything.
type Selection struct {
	// Names are pods as [NAMESPACE/]POD, or container IDs or the beginnings of these. None: all.
	Names []string
	// Namespace, Network and Parent each leave only what is in, on or above it. Empty: no limit.
	Namespace, Network, Parent string
	// Lister is the verb that shows what can be named. Empty: relink list.
	Lister string
	// Addresses says that the things are leases. A name that is an address or a prefix means those in it. A pod whose name looks like
	// one has to be named with its namespace.
	Addresses bool
}

// Candidate is one attachment that may be named. A field that is not known is empty. A limit on an empty field
// does not choose the candidate, unless Unknown is set. If the pod is empty, the other things of the same sandbox
// name it.
type Candidate struct {
	Pod         attachment.Pod
	ContainerID string
	Network     string
	// Parents are the names of all devices that the interface is stacked on, members of bonds included.
	Parents []string
	Address netip.Addr
	// Unknown says that nobody can tell what belongs in the empty fields. Every limit on such a field chooses
	// the thing, so that it is reported, if the limit also leaves a thing whose field is known. Without a pod only
	// its container ID names it.
	Unknown bool
}

// MatchesAll says that the selection names everything.
func (s Selection) MatchesAll() bool {
	return len(s.Names) == 0 && len(s.limits()) == 0
}

// Words are the selection as it is written on a command line, none for everything.
func (s Selection) Words() []string {
	words := slices.Clone(s.Names)
	for _, l := range s.limits() {
		words = append(words, "--"+l.noun, l.value)
	}
	return words
}

// Validate reports what no list of things could satisfy: an empty name, a name that contradicts Namespace.
func (s Selection) Validate() error {
	for _, name := range s.Names {
		namespace, pod, qualified := strings.Cut(name, "/")
		switch _, ok := s.prefix(name); {
		case ok:
		case name == "" || qualified && pod == "":
			return fmt.Errorf("invalid name %q: give NAMESPACE/POD, POD, or a container ID or the beginning of one", name)
		case qualified && s.Namespace != "" && namespace != s.Namespace:
			return fmt.Errorf("invalid name %q: --namespace says %s", name, s.Namespace)
		}
	}
	return nil
}

// Choose returns for each thing whether it is named. ErrNothing and ErrAmbiguous can be matched: each name
// has to name something within the limits, and each limit has to leave something.
func (s Selection) Choose(candidates []Candidate) ([]bool, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	candidates = WithPods(candidates)
	chosen, err := s.applyLimits(candidates)
	if err != nil || len(s.Names) == 0 {
		return chosen, err
	}
	named := make([]bool, len(candidates))
	for _, name := range s.Names {
		meant, err := s.resolve(name, candidates, chosen)
		if err != nil {
			return nil, err
		}
		for i, t := range candidates {
			named[i] = named[i] || chosen[i] && meant(t)
		}
	}
	return named, nil
}

// WithPods returns the candidates, each with the pod that another thing of its sandbox names if it names none.
func WithPods(candidates []Candidate) []Candidate {
	pods := map[string]attachment.Pod{}
	for _, t := range candidates {
		if t.Pod.Name != "" {
			pods[t.ContainerID] = t.Pod
		}
	}
	result := slices.Clone(candidates)
	for i := range result {
		if result[i].Pod.Name == "" && result[i].ContainerID != "" {
			result[i].Pod = pods[result[i].ContainerID]
		}
	}
	return result
}

// limit is one of the flags that leave only some things: --namespace and so on.
type limit struct {
	noun, value string
	// values returns what the thing has for it.
	values func(Candidate) []string
}

func (l limit) isUnknown(t Candidate) bool { return t.Unknown && len(l.values(t)) == 0 }

func (l limit) chooses(t Candidate) bool {
	return slices.Contains(l.values(t), l.value) || l.isUnknown(t)
}

// limits returns the flags that are set.
func (s Selection) limits() []limit {
	single := func(value string) []string {
		if value == "" {
			return nil
		}
		return []string{value}
	}
	limits := []limit{
		{"namespace", s.Namespace, func(t Candidate) []string { return single(t.Pod.Namespace) }},
		{"network", s.Network, func(t Candidate) []string { return single(t.Network) }},
		{"parent", s.Parent, func(t Candidate) []string { return t.Parents }},
	}
	return slices.DeleteFunc(limits, func(l limit) bool { return l.value == "" })
}

// applyLimits applies Namespace, Network and Parent, one after the other. A guess alone is no match: the value of a limit
// can be misspelt.
func (s Selection) applyLimits(candidates []Candidate) ([]bool, error) {
	chosen, certain := make([]bool, len(candidates)), make([]bool, len(candidates))
	for i := range chosen {
		chosen[i], certain[i] = true, true
	}
	for _, l := range s.limits() {
		present, guesses := map[string]bool{}, 0
		for i, t := range candidates {
			if certain[i] {
				for _, v := range l.values(t) {
					present[v] = true
				}
			}
			chosen[i] = chosen[i] && l.chooses(t)
			certain[i] = certain[i] && chosen[i] && !l.isUnknown(t)
			if chosen[i] && !certain[i] {
				guesses++
			}
		}
		if !slices.Contains(certain, true) {
			return nil, fmt.Errorf("--%s %s %w: %s%s", l.noun, l.value, ErrNothing, available(present), s.unknownNote(guesses))
		}
	}
	return chosen, nil
}

// unknownNote tells of the things that only a guess chooses.
func (s Selection) unknownNote(guesses int) string {
	if guesses == 0 {
		return ""
	}
	return fmt.Sprintf("; %s without a readable checkpoint may be meant: see %s", printable.Count(guesses, "attachment"), cmp.Or(s.Lister, "relink list"))
}

// resolve returns what the name stands for among the chosen candidates: a whole container ID, else a pod, else the
// beginning of a container ID. A pod can have two sandboxes, while its old one is being replaced: the pod's
// name means both.
func (s Selection) resolve(name string, candidates []Candidate, chosen []bool) (func(Candidate) bool, error) {
	if p, ok := s.prefix(name); ok {
		within := func(t Candidate) bool { return p.Contains(t.Address) }
		if !slices.ContainsFunc(Keep(candidates, chosen), within) {
			return nil, fmt.Errorf("%q %w: no such address is held, reserved or in quarantine; %s shows those that are", name, ErrNothing, s.Lister)
		}
		return within, nil
	}
	pods, sandboxes := map[string]bool{}, map[string]attachment.Pod{}
	for i, t := range candidates {
		switch {
		case !chosen[i]:
		case t.ContainerID != "" && t.ContainerID == name:
			return func(t Candidate) bool { return t.ContainerID == name }, nil
		case s.isPod(name, t.Pod):
			pods[t.Pod.String()] = true
		case strings.HasPrefix(t.ContainerID, name):
			sandboxes[t.ContainerID] = t.Pod
		}
	}
	switch {
	case len(pods) == 0 && len(sandboxes) == 0:
		return nil, s.notFound(name)
	case len(pods)+len(sandboxes) > 1:
		return nil, ambiguous(name, pods, sandboxes)
	}
	return func(t Candidate) bool {
		_, begins := sandboxes[t.ContainerID]
		return begins || pods[t.Pod.String()]
	}, nil
}

// prefix is the name as a prefix, if it can be one.
func (s Selection) prefix(name string) (_ netip.Prefix, ok bool) {
	if a, err := netip.ParseAddr(name); err == nil && a.Zone() == "" {
		name = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()).String()
	}
	p, err := netip.ParsePrefix(name)
	return p.Masked(), err == nil && s.Addresses
}

// isPod says that the name is the pod's. The namespace of a pod that was imported can be unknown: its name
// reads /POD then.
func (s Selection) isPod(name string, pod attachment.Pod) bool {
	if pod.Name == "" {
		return false
	}
	if namespace, rest, qualified := strings.Cut(name, "/"); qualified {
		return pod.Namespace == namespace && pod.Name == rest
	}
	return pod.Name == name
}

func (s Selection) notFound(name string) error {
	noun := "pod"
	if !strings.Contains(name, "/") {
		noun = "pod or container ID"
	}
	within := ""
	for _, l := range s.limits() {
		within += fmt.Sprintf(" with %s %s", l.noun, l.value)
	}
	return fmt.Errorf("%q %w: there is no such %s%s; %s shows what there is", name, ErrNothing, noun, within, cmp.Or(s.Lister, "relink list"))
}

const (
	// shortIDLength is how much of a runtime's container ID a list of sandboxes shows, as crictl does.
	shortIDLength = 13
	// runtimeIDLength is how long a runtime's container ID is: it is random, in hexadecimal digits.
	runtimeIDLength = 64
)

// ShortID is a container ID as lists show it. It names the sandbox: 13 of 64 random digits belong to one sandbox
// of a node. Every other ID is shown whole, because it can differ from others in its last characters only, as
// those of cnitool and those that are made from a namespace do.
func ShortID(id string) string {
	if len(id) == runtimeIDLength && strings.Trim(id, "0123456789abcdef") == "" {
		return id[:shortIDLength]
	}
	return id
}

// maxListed is how many things a message lists at most.
const maxListed = 10

func ambiguous(name string, pods map[string]bool, sandboxes map[string]attachment.Pod) error {
	lines := slices.Sorted(maps.Keys(pods))
	for _, id := range slices.Sorted(maps.Keys(sandboxes)) {
		line := id
		if pod := sandboxes[id]; pod.Name != "" {
			line += " (" + pod.String() + ")"
		}
		lines = append(lines, line)
	}
	return fmt.Errorf("%q %w: %s; name one of them in full", name, ErrAmbiguous, printable.First(lines, maxListed, ", "))
}

// available lists what a limit could have left.
func available(values map[string]bool) string {
	if len(values) == 0 {
		return "there is none"
	}
	return "there is " + printable.First(slices.Sorted(maps.Keys(values)), maxListed, ", ")
}

// Keep returns what is chosen of the list.
func Keep[T any](list []T, chosen []bool) (kept []T) {
	for i, item := range list {
		if chosen[i] {
			kept = append(kept, item)
		}
	}
	return kept
}
