package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestScaleOf(t *testing.T) {
	for name, test := range map[string]struct {
		spec string
		want scale
		err  string
	}{
		"Kubernetes":                  {`{"replicas":3}`, scale{replicas: 3}, ""},
		"scaled to none":              {`{"replicas":0}`, scale{}, ""},
		"ordinals.start":              {`{"replicas":3,"ordinals":{"start":5}}`, scale{start: 5, replicas: 3}, ""},
		"OpenKruise, numbers":         {`{"replicas":3,"reserveOrdinals":[3,1]}`, scale{replicas: 3, reserved: []span{{1, 1}, {3, 3}}}, ""},
		"OpenKruise, ranges":          {`{"replicas":3,"reserveOrdinals":["3-5",1,"4-7",8]}`, scale{replicas: 3, reserved: []span{{1, 1}, {3, 5}, {4, 7}, {8, 8}}}, ""},
		"nothing else counts":         {`{"replicas":1,"template":{"spec":{"replicas":"x"}}}`, scale{replicas: 1}, ""},
		"no spec":                     {``, scale{}, "its spec cannot be read: unexpected end of JSON input"},
		"no replicas":                 {`{"ordinals":{"start":5}}`, scale{}, "its spec has no replicas"},
		"replicas of another type":    {`{"replicas":"3"}`, scale{}, "its spec cannot be read: json: cannot unmarshal"},
		"a number as text":            {`{"replicas":3,"reserveOrdinals":["3"]}`, scale{}, `its reserveOrdinals have "3", which is no number and no range`},
		"a range of words":            {`{"replicas":3,"reserveOrdinals":["a-b"]}`, scale{}, `its reserveOrdinals have "a-b"`},
		"a range that goes down":      {`{"replicas":3,"reserveOrdinals":["5-3"]}`, scale{}, `its reserveOrdinals have "5-3"`},
		"a range of three":            {`{"replicas":3,"reserveOrdinals":["1-2-3"]}`, scale{}, `its reserveOrdinals have "1-2-3"`},
		"a range with a negative end": {`{"replicas":3,"reserveOrdinals":["-1-3"]}`, scale{}, `its reserveOrdinals have "-1-3"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := scaleOf(json.RawMessage(test.spec))
			if test.err == "" && (err != nil || got.start != test.want.start || got.replicas != test.want.replicas || !slices.Equal(got.reserved, test.want.reserved)) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}

func TestUnusedOrdinalsHaveAReason(t *testing.T) {
	plain, kruise := scale{start: 2, replicas: 3}, scale{replicas: 3, reserved: []span{{1, 1}, {3, 1 << 30}}}
	for _, test := range []struct {
		scale    scale
		ordinal  int
		position int
		why      string
	}{
		{plain, 1, 0, "its ordinals begin with 2"},
		{plain, 2, 0, ""},
		{plain, 4, 2, ""},
		{plain, 5, 3, "it is scaled to 3 replicas, and ordinal 5 would be number 4 of them"},
		{scale{}, 0, 0, "it is scaled to 0 replicas, and ordinal 0 would be number 1 of them"},
		{kruise, 0, 0, ""},
		{kruise, 1, 0, "its reserveOrdinals leave out ordinal 1"},
		{kruise, 2, 1, ""},
		{kruise, 1 << 29, 0, "its reserveOrdinals leave out ordinal 536870912"},
		{kruise, 1<<30 + 1, 2, ""},
		{kruise, 1<<30 + 2, 3, "it is scaled to 3 replicas, and ordinal 1073741826 would be number 4 of them"},
	} {
		position, _ := test.scale.position(test.ordinal)
		if why := test.scale.unusedReason(test.ordinal); why != test.why || position != test.position {
			t.Errorf("%+v, ordinal %d: position %d, %q, want %d, %q", test.scale, test.ordinal, position, why, test.position, test.why)
		}
	}
}

// used counts as OpenKruise's controller does: from the start on, leaving out what is reserved, until there are enough.
func used(start, replicas int, reserved map[int]bool) (ordinals []int) {
	for i := start; len(ordinals) < replicas; i++ {
		if !reserved[i] {
			ordinals = append(ordinals, i)
		}
	}
	return ordinals
}

func TestScaleCountsLikeTheController(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start, replicas := rapid.IntRange(0, 10).Draw(t, "start"), rapid.IntRange(0, 10).Draw(t, "replicas")
		elements, reserved := []any{}, map[int]bool{}
		for range rapid.IntRange(0, 6).Draw(t, "elements") {
			first := rapid.IntRange(0, 25).Draw(t, "first")
			last := first + rapid.IntRange(0, 5).Draw(t, "more")
			if elements = append(elements, fmt.Sprintf("%d-%d", first, last)); rapid.Bool().Draw(t, "number") {
				last = first
				elements[len(elements)-1] = first
			}
			for i := first; i <= last; i++ {
				reserved[i] = true
			}
		}
		spec, err := json.Marshal(map[string]any{"replicas": replicas, "ordinals": map[string]int{"start": start}, "reserveOrdinals": elements})
		if err != nil {
			t.Fatal(err)
		}
		s, err := scaleOf(spec)
		if err != nil {
			t.Fatal(err)
		}
		want := used(start, replicas, reserved)
		for ordinal := range 60 {
			is := slices.Contains(want, ordinal)
			if why := s.unusedReason(ordinal); (why == "") != is {
				t.Fatalf("%s: ordinal %d: %q, and the controller has %v", spec, ordinal, why, want)
			}
			if position, _ := s.position(ordinal); is && want[position] != ordinal {
				t.Fatalf("%s: ordinal %d has the position %d in %v", spec, ordinal, position, want)
			}
		}
	})
}
