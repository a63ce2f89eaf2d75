package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/sandbox"
)

func TestAboutAbsent(t *testing.T) {
	ready, stopped := sandbox.OfRuntime{ContainerID: "c1", Ready: true}, sandbox.OfRuntime{ContainerID: "c1"}
	known := func(id string, ready bool) sandbox.Known {
		return sandbox.Known{From: sandbox.FromRuntime, ContainerID: id, Ready: ready}
	}
	for name, test := range map[string]struct {
		survey sandbox.Survey
		want   []string
	}{
		"the pod has ended":            {sandbox.Survey{}, nil},
		"its sandbox has stopped":      {sandbox.Survey{Absent: []sandbox.OfRuntime{stopped}}, nil},
		"it cannot be seen from here":  {sandbox.Survey{Absent: []sandbox.OfRuntime{ready}}, []string{"the container runtime keeps sandboxes running that cannot be found from here: [c1]"}},
		"it is in another namespace":   {sandbox.Survey{Sandboxes: []sandbox.Known{known("c1", true)}}, []string{"sandboxes run, but not in the recorded namespaces: [c1]"}},
		"others are none of it":        {sandbox.Survey{Sandboxes: []sandbox.Known{known("c2", true)}, Absent: []sandbox.OfRuntime{{ContainerID: "c3", Ready: true}}}, nil},
		"nobody can be asked":          {sandbox.Survey{Incomplete: errors.New("no runtime")}, []string{"some sandboxes were not found, and whether their pods have ended is not known: []"}},
		"stopped, in a reused network": {sandbox.Survey{Sandboxes: []sandbox.Known{known("c1", false)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range aboutAbsent(test.survey, map[string]bool{"c1": true}) {
				got = append(got, fmt.Sprintf("%s: %v", r.text, r.ids))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("aboutAbsent() (-want +got):\n%s", diff)
			}
		})
	}
}
