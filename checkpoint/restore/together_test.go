package restore

import (
	"fmt"
	"slices"
	"testing"
)

// Each of them by itself would read all addresses or routes of the pod.
func TestWhatIsDoneInOneGo(t *testing.T) {
	var steps []Step
	for _, action := range []Action{SetMTU, SetSetting, SetSetting, AddAddress, AddAddress, AddRoute, AddRoute, OrderRoutes, OrderRoutes, OrderRoutes, AddRule, AddRule} {
		steps = append(steps, Step{Action: action})
	}
	var got []string
	for _, group := range together(steps) {
		got = append(got, fmt.Sprint(group[0].Action, " ", len(group)))
	}
	want := []string{"set-mtu 1", "set-setting 1", "set-setting 1", "add-address 2", "add-route 2", "order-routes 3", "add-rule 1", "add-rule 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
