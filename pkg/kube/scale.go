package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// scale says which ordinals the pods of a StatefulSet have: the first replicas ordinals from start on that are not reserved.
//
// Kubernetes counts so in [start, start+replicas). OpenKruise leaves out the ordinals of spec.reserveOrdinals, and takes
// the next ones for them (getStatefulSetReplicasRange in pkg/controller/statefulset).
type scale struct {
	start, replicas int
	// reserved are in the order of their first ordinals. They can overlap.
	reserved []span
}

// span are the ordinals from first to last, both included.
type span struct{ first, last int }

// scaleOf reads the spec of a StatefulSet. The error says what is missing or wrong in it.
func scaleOf(spec json.RawMessage) (scale, error) {
	var fields struct {
		Replicas *int32 `json:"replicas"`
		Ordinals struct {
			Start int32 `json:"start"`
		} `json:"ordinals"`
		ReserveOrdinals []intstr.IntOrString `json:"reserveOrdinals"`
	}
	if err := json.Unmarshal(spec, &fields); err != nil {
		return scale{}, fmt.Errorf("its spec cannot be read: %w", err)
	}
	if fields.Replicas == nil {
		return scale{}, fmt.Errorf("its spec has no replicas")
	}
	s := scale{start: int(fields.Ordinals.Start), replicas: int(*fields.Replicas)}
	for _, value := range fields.ReserveOrdinals {
		ordinals, err := spanOf(value)
		if err != nil {
			return scale{}, err
		}
		s.reserved = append(s.reserved, ordinals)
	}
	slices.SortFunc(s.reserved, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return s, nil
}

// spanOf reads an element of reserveOrdinals: a number, or two of them such as "3-5". OpenKruise refuses others, or ignores
// all elements because of one. Which ordinals are in use is not known then.
func spanOf(value intstr.IntOrString) (span, error) {
	if value.Type == intstr.Int {
		return span{value.IntValue(), value.IntValue()}, nil
	}
	first, last, found := strings.Cut(value.StrVal, "-")
	low, err := strconv.ParseUint(first, 10, 31)
	high, err2 := strconv.ParseUint(last, 10, 31)
	if !found || err != nil || err2 != nil || low > high {
		return span{}, fmt.Errorf("its reserveOrdinals have %s, which is no number and no range such as 3-5", quoteShort(value.StrVal))
	}
	return span{int(low), int(high)}, nil
}

// position is the number of the ordinal among those that can be in use: 0 for the first. Otherwise why says why no pod has
// the ordinal.
func (s scale) position(ordinal int) (position int, reason string) {
	if ordinal < s.start {
		return 0, fmt.Sprintf("its ordinals begin with %d", s.start)
	}
	position = ordinal - s.start
	uncounted := s.start
	for _, r := range s.reserved {
		if r.first <= ordinal && ordinal <= r.last {
			return 0, fmt.Sprintf("its reserveOrdinals leave out ordinal %d", ordinal)
		}
		if first, last := max(r.first, uncounted), min(r.last, ordinal); first <= last {
			position -= last - first + 1
			uncounted = last + 1
		}
	}
	return position, ""
}

// unusedReason is empty if a pod has the ordinal, and otherwise says why no pod has it.
func (s scale) unusedReason(ordinal int) string {
	position, reason := s.position(ordinal)
	if reason == "" && position >= s.replicas {
		reason = fmt.Sprintf("it is scaled to %d replicas, and ordinal %d would be number %d of them", s.replicas, ordinal, position+1)
	}
	return reason
}
