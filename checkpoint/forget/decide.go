package forget

import (
	"fmt"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// candidate is a checkpoint, and what is known of its sandbox.
type candidate struct {
	record checkpoint.Record
	// unreadable is set if the checkpoint cannot be read. Then record is what is left of it.
	unreadable *checkpoint.Unreadable
	evidence   sandbox.Evidence
	// guessed says that nobody can tell whether the checkpoint is meant (selection.Selection.Guesses).
	guessed bool
}

// key is the attachment as the checkpoint's file names it.
func (c candidate) key() attachment.Key {
	if c.unreadable == nil {
		return c.record.Attachment
	}
	return c.unreadable.Attachment()
}

// passed is the state of what nobody asked for.
const passed CheckpointState = ""

// decide says what to do and why. named says that the operator named checkpoints. Without it the operator asked for all that
// are stale.
func decide(c candidate, named, force bool) (CheckpointState, string) {
	if c.unreadable != nil && c.unreadable.IfName == "" {
		return Failed, fmt.Sprintf("the sandbox's directory cannot be read: %v", c.unreadable.Err)
	}
	reason := c.evidence.Reason
	switch c.evidence.Verdict {
	case sandbox.VerdictGone:
		return Forgotten, "its sandbox is gone: " + reason
	case sandbox.VerdictAlive:
		switch {
		case !named:
			return passed, "its sandbox is alive: " + reason
		case c.guessed:
			return Kept, fmt.Sprintf("its sandbox is alive: %s. Nothing tells whether it is meant. To forget it: relink forget %s --force", reason, c.key().ContainerID)
		case force:
			return Forgotten, fmt.Sprintf("its sandbox is alive (%s): relink restore will not bring this interface back", reason)
		}
		return Kept, fmt.Sprintf("its sandbox is alive: %s. --force forgets it all the same: relink restore will not bring this interface back then", reason)
	}
	switch {
	case named && force && !c.guessed:
		return Forgotten, fmt.Sprintf("nobody knows whether its sandbox is gone (%s): if it is alive, relink restore will not bring this interface back", reason)
	case named && !c.guessed:
		return Kept, fmt.Sprintf("nobody knows whether its sandbox is gone: %s. --force forgets it all the same", reason)
	}
	return Kept, fmt.Sprintf("nobody knows whether its sandbox is gone: %s. To forget it all the same: relink forget %s --force", reason, c.key().ContainerID)
}

// tornEvidence says whether the sandbox of a torn checkpoint is there. recorded is the evidence of the namespace that can still be
// read in it, nil if none can. siblings is the evidence of the namespaces in the other checkpoints of its container.
func tornEvidence(recorded *sandbox.Evidence, siblings []sandbox.Evidence) sandbox.Evidence {
	if recorded != nil {
		return *recorded
	}
	if len(siblings) == 0 {
		return sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "the checkpoint cannot be read, and nothing else tells its namespace"}
	}
	strongest := siblings[0]
	for _, sibling := range siblings {
		if weight[sibling.Verdict] > weight[strongest.Verdict] {
			strongest = sibling
		}
	}
	strongest.Reason = "another checkpoint of its container tells the namespace: " + strongest.Reason
	return strongest
}

// weight orders the states. The sandbox is gone only if all namespaces of its container are.
var weight = map[sandbox.Verdict]int{sandbox.VerdictGone: 0, sandbox.VerdictUnknown: 1, sandbox.VerdictAlive: 2}
