package selection

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
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
}

// Thing is one attachment that may be named. A field that is not known is empty. A limit on an empty field
// does not choose the thing, unless Unknown is set. If the pod is empty, the other things of the same sandbox
// name it.
type Thing struct {
	Pod         attachment.Pod
	ContainerID string
	Network     string
	// Parents are the names of all devices that the interface is stacked on, members of bonds included.
	Parents []string
	// Unknown says that nobody can tell what belongs in the empty fields. Every limit on such a field chooses
	// the thing, so that it is reported, if the limit also leaves a thing whose field is known. Without a pod only
	// its container ID names it.
	Unknown bool
}

// All says that the selection names everything.
func (s Selection) All() bool {
	return len(s.Names) == 0 && s.Namespace == "" && s.Network == "" && s.Parent == ""
}

// Words are the selection as it is written on a command line, none for everything.
func (s Selection) Words() []string {
	words := slices.Clone(s.Names)
	for _, l := range []struct{ flag, value string }{{"--namespace", s.Namespace}, {"--network", s.Network}, {"--parent", s.Parent}} {
		if l.value != "" {
			words = append(words, l.flag, l.value)
		}
	}
	return words
}

// Validate reports what no list of things could satisfy: an empty name, a name that contradicts Namespace.
func (s Selection) Validate() error {
	for _, name := range s.Names {
		namespace, pod, qualified := strings.Cut(name, "/")
		switch {
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
func (s Selection) Choose(things []Thing) ([]bool, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	things = WithPods(things)
	chosen, err := s.limit(things)
	if err != nil || len(s.Names) == 0 {
		return chosen, err
	}
	named := make([]bool, len(things))
	for _, name := range s.Names {
		meant, err := s.meant(name, things, chosen)
		if err != nil {
			return nil, err
		}
		for i, t := range things {
			named[i] = named[i] || chosen[i] && meant(t)
		}
	}
	return named, nil
}

// WithPods returns the things, each with the pod that another thing of its sandbox names if it names none.
func WithPods(things []Thing) []Thing {
	pods := map[string]attachment.Pod{}
	for _, t := range things {
		if t.Pod.Name != "" {
			pods[t.ContainerID] = t.Pod
		}
	}
	all := slices.Clone(things)
	for i := range all {
		if all[i].Pod.Name == "" && all[i].ContainerID != "" {
			all[i].Pod = pods[all[i].ContainerID]
		}
	}
	return all
}

// limit is one of the flags that leave only some things.
type limit struct {
	flag, value string
	// of returns what the thing has for it.
	of func(Thing) []string
}

func (l limit) isUnknown(t Thing) bool { return t.Unknown && len(l.of(t)) == 0 }

func (l limit) chooses(t Thing) bool { return slices.Contains(l.of(t), l.value) || l.isUnknown(t) }

// limits returns the flags that are set.
func (s Selection) limits() []limit {
	one := func(value string) []string {
		if value == "" {
			return nil
		}
		return []string{value}
	}
	all := []limit{
		{"--namespace", s.Namespace, func(t Thing) []string { return one(t.Pod.Namespace) }},
		{"--network", s.Network, func(t Thing) []string { return one(t.Network) }},
		{"--parent", s.Parent, func(t Thing) []string { return t.Parents }},
	}
	return slices.DeleteFunc(all, func(l limit) bool { return l.value == "" })
}

// Guesses says that a limit chooses the thing only because nobody can tell whether it is meant.
func (s Selection) Guesses(t Thing) bool {
	return slices.ContainsFunc(s.limits(), func(l limit) bool { return l.isUnknown(t) })
}

// limit applies Namespace, Network and Parent, one after the other. A guess alone is no match: the value of a limit
// can be misspelt.
func (s Selection) limit(things []Thing) ([]bool, error) {
	chosen, known := make([]bool, len(things)), make([]bool, len(things))
	for i := range chosen {
		chosen[i], known[i] = true, true
	}
	for _, l := range s.limits() {
		there, guesses := map[string]bool{}, 0
		for i, t := range things {
			if known[i] {
				for _, v := range l.of(t) {
					there[v] = true
				}
			}
			chosen[i] = chosen[i] && l.chooses(t)
			known[i] = known[i] && chosen[i] && !l.isUnknown(t)
			if chosen[i] && !known[i] {
				guesses++
			}
		}
		if !slices.Contains(known, true) {
			return nil, fmt.Errorf("%s %s %w: %s%s", l.flag, l.value, ErrNothing, thereIs(there), s.unknown(guesses))
		}
	}
	return chosen, nil
}

// unknown tells of the things that only a guess chooses.
func (s Selection) unknown(guesses int) string {
	lister := cmp.Or(s.Lister, "relink list")
	switch guesses {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("; 1 attachment may be meant, but its checkpoint cannot be read: %s shows it", lister)
	}
	return fmt.Sprintf("; %d attachments may be meant, but their checkpoints cannot be read: %s shows them", guesses, lister)
}

// meant returns what the name stands for among the chosen things: a whole container ID, else a pod, else the
// beginning of a container ID. A pod can have two sandboxes, while its old one is being replaced: the pod's
// name means both.
func (s Selection) meant(name string, things []Thing, chosen []bool) (func(Thing) bool, error) {
	pods, sandboxes := map[string]bool{}, map[string]attachment.Pod{}
	for i, t := range things {
		switch {
		case !chosen[i]:
		case t.ContainerID != "" && t.ContainerID == name:
			return func(t Thing) bool { return t.ContainerID == name }, nil
		case s.isPod(name, t.Pod):
			pods[t.Pod.String()] = true
		case strings.HasPrefix(t.ContainerID, name):
			sandboxes[t.ContainerID] = t.Pod
		}
	}
	switch {
	case len(pods) == 0 && len(sandboxes) == 0:
		return nil, s.noSuch(name)
	case len(pods)+len(sandboxes) > 1:
		return nil, ambiguous(name, pods, sandboxes)
	}
	return func(t Thing) bool {
		_, begins := sandboxes[t.ContainerID]
		return begins || pods[t.Pod.String()]
	}, nil
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

func (s Selection) noSuch(name string) error {
	what := "pod"
	if !strings.Contains(name, "/") {
		what = "pod or container ID"
	}
	within := ""
	for _, l := range []struct{ what, value string }{{"namespace", s.Namespace}, {"network", s.Network}, {"parent", s.Parent}} {
		if l.value != "" {
			within += fmt.Sprintf(" with %s %s", l.what, l.value)
		}
	}
	return fmt.Errorf("%q %w: there is no such %s%s; %s shows what there is", name, ErrNothing, what, within, cmp.Or(s.Lister, "relink list"))
}

const (
	// shownID is how much of a runtime's container ID a list of sandboxes shows, as crictl does.
	shownID = 13
	// runtimeID is how long a runtime's container ID is: it is random, in hexadecimal digits.
	runtimeID = 64
)

// ShortID is a container ID as lists show it. It names the sandbox: 13 of 64 random digits belong to one sandbox
// of a node. Every other ID is shown whole, because it can differ from others in its last characters only, as
// those of cnitool and those that are made from a namespace do.
func ShortID(id string) string {
	if len(id) == runtimeID && strings.Trim(id, "0123456789abcdef") == "" {
		return id[:shownID]
	}
	return id
}

// listed is how many things a message lists at most.
const listed = 10

func ambiguous(name string, pods map[string]bool, sandboxes map[string]attachment.Pod) error {
	all := slices.Sorted(maps.Keys(pods))
	for _, id := range slices.Sorted(maps.Keys(sandboxes)) {
		line := id
		if pod := sandboxes[id]; pod.Name != "" {
			line += " (" + pod.String() + ")"
		}
		all = append(all, line)
	}
	return fmt.Errorf("%q %w: %s; name one of them in full", name, ErrAmbiguous, first(all))
}

// thereIs lists what a limit could have left.
func thereIs(values map[string]bool) string {
	if len(values) == 0 {
		return "there is none"
	}
	return "there is " + first(slices.Sorted(maps.Keys(values)))
}

func first(all []string) string {
	if len(all) > listed {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:listed], ", "), len(all)-listed)
	}
	return strings.Join(all, ", ")
}
