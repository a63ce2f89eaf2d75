package agent

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/netstate"
)

// stackOf returns a stack with an attachment that has the record.
func stackOf(devices netstate.Devices, r checkpoint.Record) *stack {
	return &stack{record: r, members: map[*member]bool{{record: r}: true}, loss: restore.Losses(devices, []checkpoint.Record{r})[0]}
}

// The manager's step is still to do, and something else keeps the pods lost that no restore can repair. The agent waits
// between its tries.
func TestATryInVainIsFollowedByAWait(t *testing.T) {
	nic := netstate.Device{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500, IfIndex: 2}
	vlan := netstate.Device{Kind: netstate.KindVLAN, Name: "eth1.3", MTU: 1500, IfIndex: 12, VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}}
	var r checkpoint.Record
	r.Interface.Link = netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0"}
	r.Interface.Parents = []netstate.Device{vlan, nic}
	there := netstate.Devices{
		{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500}, Index: 20},
		{Device: netstate.Device{Kind: netstate.KindBridge, Name: "eth1.3", MTU: 1500}, Index: 21, Up: true},
	}
	c := &chain{base: "eth1", stacks: []*stack{stackOf(there, r)}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	look := func() decision {
		c.update(there, nil, false, now)
		return c.decide(rules{}, now)
	}
	for try := range 4 {
		d := look()
		if !d.restore || !d.allowManagerSteps {
			t.Fatalf("try %d: %+v", try, d)
		}
		c.triedPicture, c.view.lastTry, c.view.failures, c.view.failure = c.picture, now, 0, "" // As start and finish do.
		if d = look(); d.State != control.BackingOff || !d.NextTry.Equal(now.Add(backoff(try+1))) {
			t.Fatalf("after try %d: %+v", try, d)
		}
		now = d.NextTry
	}
	there[0].Up = true
	if look(); c.view.failures != 4 || !c.view.changed || c.uselessTries != 0 {
		t.Errorf("after a change: %+v", c.view)
	}
}

// A base comes and goes. The agent restores it at once the first times, and then with pauses. After the base has stayed
// for a while, the agent restores it at once again.
func TestABaseThatComesAndGoes(t *testing.T) {
	var r checkpoint.Record
	r.Interface.Link = netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0"}
	r.Interface.Parents = []netstate.Device{{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500, IfIndex: 2}}
	back := netstate.Devices{{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500}, Index: 20, Up: true}}
	on := stackOf(back, r)
	c, loss := &chain{base: "eth1", stacks: []*stack{on}}, on.loss
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// flap makes the base go and come back. It returns the first decision, and how long the restore waits.
	flap := func() (first decision, wait time.Duration) {
		began := now
		on.loss = loss
		decide := func() decision {
			c.update(back, nil, false, now)
			return c.decide(rules{}, now)
		}
		for first = decide(); !c.decided.restore; decide() {
			now = c.decided.NextTry
		}
		wait = now.Sub(began)
		now = now.Add(10 * time.Millisecond)
		c.triedPicture, c.view.lastTry = c.picture, now // As start and finish do.
		on.loss = nil
		c.update(back, nil, false, now)
		now = now.Add(10 * time.Millisecond)
		return first, wait
	}
	for i := range flaps - 1 {
		if d, wait := flap(); wait != 0 || !d.restore {
			t.Fatalf("loss %d: %+v after %s", i, d, wait)
		}
	}
	restores := 0
	for began := now; now.Sub(began) < time.Minute; restores++ {
		flap()
	}
	if restores > 25 {
		t.Errorf("%d restores in a minute", restores)
	}
	now = now.Add(flapTime)
	if _, wait := flap(); wait != 0 {
		t.Errorf("the restore waits for %s after the base has stayed for %s", wait, flapTime)
	}
}
