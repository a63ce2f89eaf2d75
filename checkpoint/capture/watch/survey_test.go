package watch

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// A round looks again at what nothing tells the end of, and at nothing else: an idle pod costs nothing.
func TestWhatARoundLooksAtAgain(t *testing.T) {
	key, past := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, time.Now().Add(-time.Hour)
	recorded := func(entry attached) sandbox { return sandbox{attachments: map[attachment.Key]*attached{key: &entry}} }
	said := sandbox{unrecordedState: unrecordedState{emptyTold: true}}
	for name, test := range map[string]struct {
		sandbox sandbox
		nobody  bool // wants to hear of pods without anything to record
		want    bool
	}{
		"it is as recorded":                       {recorded(attached{}), false, false},
		"it is not as recorded":                   {recorded(attached{refused: past}), false, true},
		"it has nothing, and that was said":       {said, false, false},
		"it has nothing, and that was never said": {sandbox{}, false, true},
		"it has nothing, and nobody asks":         {sandbox{}, true, false},
		"its parent is away":                      {sandbox{lost: true}, true, true},
		"nothing leads to it":                     {sandbox{unrecordedState: unrecordedState{missingSince: past}}, true, true},
	} {
		s := &test.sandbox
		r := &Refresher{sandboxes: map[attachment.Namespace]*sandbox{{Inode: 1}: s}, survey: newSurvey()}
		if !test.nobody {
			r.OnEmpty = func(attachment.Pod) {}
		}
		r.beginRound()
		if s.pace.dirty != test.want || (len(r.survey.questions) > 0) != test.want {
			t.Errorf("%s: looked at again: %t, want %t", name, s.pace.dirty, test.want)
		}
	}
}
