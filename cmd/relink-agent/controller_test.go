package main

import (
	"os"
	"strings"
	"testing"
)

// Of two controllers on one host one leads. The Lease has the pod's name, for people.
func TestControllersHaveDifferentNames(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for env, name := range map[string]string{"": host, "relink-controller-7d9f": "relink-controller-7d9f"} {
		t.Setenv(podEnv, env)
		one, err := newIdentity()
		if err != nil {
			t.Fatal(err)
		}
		two, err := newIdentity()
		if err != nil {
			t.Fatal(err)
		}
		if one == two || !strings.HasPrefix(one, name+"_") || !strings.HasPrefix(two, name+"_") {
			t.Errorf("%s=%q: %q and %q, want two names with %s", podEnv, env, one, two, name)
		}
	}
}
