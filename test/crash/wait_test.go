package crash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
)

// soon is how long a program may take that has to wait for nobody. It is less than the 30 s for which relink waits for
// a lock.
const soon = 20 * time.Second

// await waits until holds returns true. That must happen soon.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, soon)
		}
	}
}

// background is a program that runs beside the test.
type background struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan error
}

func start(t *testing.T, cmd *exec.Cmd) *background {
	t.Helper()
	b := &background{cmd: cmd, done: make(chan error, 1)}
	cmd.Stdout, cmd.Stderr = &b.out, &b.out
	must(t, cmd.Start())
	go func() { b.done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return b
}

// waits expects that the program waits for the lock of a sandbox that somebody else holds. Then it has the file of the
// lock open.
func (b *background) waits(t *testing.T) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid)
	await(t, b.cmd.Path+" waits for a lock", func() bool {
		files, _ := os.ReadDir(dir)
		return slices.ContainsFunc(files, func(f os.DirEntry) bool {
			file, err := os.Readlink(filepath.Join(dir, f.Name()))
			return err == nil && filepath.Base(file) == ".lock"
		})
	})
}

// ends expects that the program ends soon and successfully.
func (b *background) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-b.done:
		if err != nil {
			t.Errorf("%s: %v\n%s", b.cmd.Path, err, &b.out)
		}
	case <-time.After(soon):
		t.Errorf("%s still runs\n%s", b.cmd.Path, &b.out)
	}
}

// hold takes the locks of the sandboxes, as somebody does who works on them. release ends that.
func hold(t *testing.T, store *checkpoint.Store, ids ...string) (release func()) {
	t.Helper()
	var unlocks []func()
	for _, id := range ids {
		unlock, err := store.TryLock(id)
		must(t, err)
		unlocks = append(unlocks, unlock)
	}
	return func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
}

func (p *pod) attached(t *testing.T) bool {
	t.Helper()
	return slices.Contains(links(t, p.netns), p.ifName)
}

// Somebody works on more sandboxes than relink has processors. All other sandboxes are still served.
func TestSandboxesDoNotWaitForEachOther(t *testing.T) {
	n := newNode(t)
	var ids []string
	var held []*pod
	for i := range 5 {
		p := n.newPod(t, fmt.Sprintf("a-held%d", i), i%2 == 1)
		must(t, p.add())
		held, ids = append(held, p), append(ids, p.id)
	}
	var free []*pod
	for i := range 2 {
		p := n.newPod(t, fmt.Sprintf("free%d", i), i == 1)
		must(t, p.add())
		free = append(free, p)
	}
	release := hold(t, n.store, ids...)
	for _, chained := range []bool{false, true} {
		p := n.newPod(t, "new", chained)
		begin := time.Now()
		must(t, p.add())
		must(t, p.del())
		if took := time.Since(begin); took > soon {
			t.Errorf("ADD and DEL took %s", took)
		}
	}
	loseParent(t)
	restores := []*background{start(t, n.command("restore --wait 5s")), start(t, n.command("restore --wait 5s"))}
	for _, p := range free {
		await(t, p.id+" is restored", func() bool { return p.attached(t) })
	}
	for _, b := range restores {
		b.waits(t)
	}
	for _, p := range held {
		if p.attached(t) {
			t.Errorf("%s was touched", p.id)
		}
		p.loseSandbox(t)
	}
	free[0].loseSandbox(t)
	gc := start(t, free[0].plugin("relink-macvlan", "GC", `, "cni.dev/valid-attachments": [{"containerID": "free1", "ifname": "eth0"}]`))
	await(t, "free0 is forgotten", func() bool {
		_, err := n.store.Load("free0", "eth0")
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	})
	for _, b := range append(restores, gc) {
		b.waits(t)
	}
	for _, p := range held {
		if _, err := n.store.Load(p.id, "eth0"); err != nil {
			t.Errorf("%s was touched: %v", p.id, err)
		}
	}
	release()
	for _, b := range append(restores, gc) {
		b.ends(t)
	}
	if records := n.records(t); len(records) != 1 {
		t.Errorf("left: %v", records)
	}
	for _, p := range slices.Concat(held, free) {
		must(t, p.del())
		p.gone(t)
	}
}

func TestCaptureDoesNotWaitForOtherSandboxes(t *testing.T) {
	n := newNode(t)
	var pods []*pod
	for _, id := range []string{"a-held0", "a-held1", "free"} {
		p := n.newPod(t, id, true)
		_, err := output(p.plugin("macvlan", "ADD", ""))
		must(t, err)
		p.remember(t)
		pods = append(pods, p)
	}
	release := hold(t, n.store, "a-held0", "a-held1")
	capture := start(t, n.command("capture"))
	await(t, "the other is captured", func() bool {
		_, err := n.store.Load("free", "eth0")
		return err == nil
	})
	capture.waits(t)
	release()
	capture.ends(t)
	if records := n.records(t); len(records) != len(pods) {
		t.Errorf("captured %v", records)
	}
}

// A pod was attached anew while GC waited, even in the same namespace. It is not the one that the runtime's list left
// out.
func TestGCKeepsWhatWasAttachedAnewMeanwhile(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, "c1", false)
	must(t, p.add())
	release := hold(t, n.store, p.id)
	p.loseSandbox(t)
	gc := start(t, p.plugin("relink-macvlan", "GC", `, "cni.dev/valid-attachments": []`))
	gc.waits(t)
	r, err := n.store.Load(p.id, p.ifName)
	must(t, err)
	r.CapturedAt = r.CapturedAt.Add(time.Second)
	must(t, n.store.Save(r))
	release()
	gc.ends(t)
	if _, err := n.store.Load(p.id, p.ifName); err != nil {
		t.Error(err)
	}
}

// A capture that began before a DEL writes its checkpoint during the DEL. No other checkpoint has named this interface,
// as after a kill.
func TestDelForgetsWhatACaptureIsAboutToWrite(t *testing.T) {
	eachPlugin(t, newNode(t), func(t *testing.T, newPod func(*testing.T) *pod) {
		p := newPod(t)
		must(t, p.add())
		r, err := p.store.Load(p.id, p.ifName)
		must(t, err)
		must(t, p.store.Forget(p.id, p.ifName))
		sandbox, err := kernel.Open(p.netns)
		must(t, err)
		r.Attachment.ContainerID = checkpoint.UnnamedID(sandbox.Identity())
		sandbox.Close()
		release := hold(t, p.store, r.Attachment.ContainerID)
		del := start(t, p.delFirst())
		del.waits(t)
		must(t, p.store.Save(r))
		release()
		del.ends(t)
		must(t, p.del())
		p.gone(t)
	})
}
