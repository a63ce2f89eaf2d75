package pool

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSignOfLife(t *testing.T) {
	booted := blockOf("A.", "me")
	booted.Status.Holders[0].Boot = "boot-2"
	for name, test := range map[string]struct {
		was, now Block
		want     string
	}{
		"nothing":                              {blockOf("A.", "me"), blockOf("A.", "me"), ""},
		"a boot":                               {blockOf("A.", "me"), booted, "it has confirmed what it has"},
		"a return":                             {blockOf("AA", "me"), blockOf("A.", "me"), "it has given back 10.3.0.11"},
		"a return of all":                      {blockOf("A.", "me"), blockOf("..", "me").Release(partyOf("me"), nil, nil), "it has given back all that it had"},
		"a deleted block":                      {blockOf("A.", "me"), Block{}, "it has given back all that it had"},
		"a deleted block that it asked":        {blockOf("A.", "a").wanted(anyOf("me", 2)), Block{}, ""},
		"a hand-over to who has asked":         {blockOf("AB", "me", "a").wanted(anyOf("a", 1)), blockOf("BB", "me", "a").Release(partyOf("me"), nil, nil), "it has given back all that it had"},
		"a take":                               {blockOf("A.", "me"), blockOf("AA", "me"), "it has taken 10.3.0.11"},
		"a take of a fenced node's":            {blockOf("AB", "me", "a!"), blockOf("AA", "me", "a!"), "it has taken 10.3.0.11"},
		"what it gets from another node":       {blockOf("AB", "me", "a"), blockOf("AA", "me", "a"), ""},
		"a question":                           {blockOf("A", "me"), blockOf("A", "me").wanted(anyOf("me", 1)), "it asks for addresses"},
		"a question for more":                  {blockOf("A", "me").wanted(anyOf("me", 1)), blockOf("A", "me").wanted(anyOf("me", 2)), "it asks for addresses"},
		"a question for an owner's":            {blockOf("A", "a").wanted(anyOf("me", 1)), blockOf("A", "a").wanted(anyOf("me", 1), oneOf("me", "10.3.0.10")), "it asks for addresses"},
		"a question that is half answered":     {blockOf("A", "me").wanted(anyOf("me", 2)), blockOf("A", "me").wanted(anyOf("me", 1)), ""},
		"another node's question":              {blockOf("A", "me"), blockOf("A", "me").wanted(anyOf("a", 1)), ""},
		"another node's take":                  {blockOf("A.", "me"), blockOf("AB", "me", "a"), ""},
		"a fence by somebody else":             {blockOf("A.", "me"), blockOf("A.", "me!"), ""},
		"a fence, and a take of what it had":   {blockOf("A.", "me"), blockOf("B.", "me!", "a"), ""},
		"it was fenced before, and has left":   {blockOf("A.", "me!"), blockOf(".."), ""},
		"the first that it gets, from another": {blockOf("AA", "a").wanted(anyOf("me", 1)), blockOf("AA", "a").wanted(anyOf("me", 1)).Release(partyOf("a"), []int{0}, nil), ""},
	} {
		if is := test.was.SignOfLife(test.now, partyOf("me")); is != test.want {
			t.Errorf("%s: %q, want %q", name, is, test.want)
		}
	}
}

// TestSignOfLifeOfAnyStep draws steps of several parties. A step is a sign of the life of one party at most. If it moves addresses of
// nobody or of who is not fenced, it is one of exactly one.
func TestSignOfLifeOfAnyStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parties := []Party{partyOf("0"), partyOf("1"), partyOf("2")}
		l := Layout{Name: "p", UID: "u", BlockSize: 6, Ranges: []Span{span("10.3.0.0", "10.3.0.5")}}
		b, _ := NewBlock(l, 0, parties[0], "boot-1")
		for range rapid.IntRange(0, 12).Draw(t, "steps before") {
			b, _, _ = drawStep(t, b, parties)
		}
		next, what, _ := drawStep(t, b, parties)
		var signs []string
		for _, p := range parties {
			if sign := b.SignOfLife(next, p); sign != "" {
				signs = append(signs, p.Node+": "+sign)
			}
		}
		moves := what != "fence" && what != "leave" && b.Status.Addresses != next.Status.Addresses
		if len(signs) > 1 || moves && len(signs) < 1 {
			t.Fatalf("%s makes %s of %s, and the signs of life are %q", what, blockText(next), blockText(b), signs)
		}
	})
}
