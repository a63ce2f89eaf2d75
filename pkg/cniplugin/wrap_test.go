package cniplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
)

func TestWrapKeepsTheWholeMessage(t *testing.T) {
	inner := fmt.Errorf("read /run/pool: %w", Error(5, "io"))
	if got := code(t, Wrap(inner, "allocate")).Msg; got != "allocate: read /run/pool: io" {
		t.Errorf("%q", got)
	}
	if got := code(t, Wrap(errors.Join(errors.New("first"), Error(5, "io")), "undo")).Msg; got != "undo: first\nio" {
		t.Errorf("%q", got)
	}
}

func TestRoutesRefuseNumbersThatDoNotFit(t *testing.T) {
	for _, route := range []string{
		`{"dst": "10.9.0.0/16", "scope": 509}`, `{"dst": "10.9.0.0/16", "scope": -1}`, `{"dst": "10.9.0.0/16", "priority": -1}`,
		`{"dst": "10.9.0.0/16", "mtu": -1}`, `{"dst": "10.9.0.0/16", "table": 4294967550}`,
	} {
		var r current.Result
		if err := json.Unmarshal([]byte(`{"routes": [`+route+`]}`), &r); err != nil {
			t.Fatal(err)
		}
		if got, err := Routes(&r); err == nil {
			t.Errorf("%s: %+v", route, got)
		}
	}
}
