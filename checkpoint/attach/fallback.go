package attach

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// fallback is a master that exists, while the masters before it in the configured list are missing.
type fallback struct {
	master  string
	missing []string
}

// claim is a checkpoint that speaks against a fallback: its attachment is on a missing master, and comes back with that.
type claim struct {
	record checkpoint.Record
	lost   string
}

// claims returns what the records say against the fallback. exists says whether the host has a device.
func (f fallback) claims(records []checkpoint.Record, exists func(name string) (bool, error)) (found []claim, err error) {
	for _, r := range records {
		lost, err := f.lostParent(r, exists)
		if err != nil {
			return nil, err
		}
		if lost != "" {
			found = append(found, claim{r, lost})
		}
	}
	return found, nil
}

// lostParent returns the missing master that the attachment is on, empty for none. A configuration can name a master by an alternative name,
// which is not recorded: then it is the base that is missing.
func (f fallback) lostParent(r checkpoint.Record, exists func(name string) (bool, error)) (string, error) {
	parents := r.Interface.Parents
	if r.Interface.ParentsInSandbox || len(parents) == 0 {
		return "", nil
	}
	if i := slices.IndexFunc(parents, func(p netstate.Device) bool { return slices.Contains(f.missing, p.Name) }); i >= 0 {
		return parents[i].Name, nil
	}
	if !f.namesMissingMaster(r) {
		return "", nil
	}
	base := parents[len(parents)-1].Name
	if found, err := exists(base); err != nil || found {
		return "", err
	}
	return base, nil
}

// namesMissingMaster says whether the attachment's configuration names a master that is missing.
func (f fallback) namesMissingMaster(r checkpoint.Record) bool {
	var config struct {
		Master cniplugin.Names `json:"master"`
	}
	return json.Unmarshal(r.CNI.Config, &config) == nil &&
		slices.ContainsFunc(config.Master, func(name string) bool { return slices.Contains(f.missing, name) })
}

// maxNamedClaims is how many attachments a refusal names.
const maxNamedClaims = 3

// refusal says why the fallback is not taken, and how an ADD works again.
func (f fallback) refusal(claims []claim) error {
	var lost, names []string
	for _, c := range claims {
		lost, names = append(lost, c.lost), append(names, c.record.Attachment.IfName+" of "+c.record.Pod.Or(c.record.Attachment.ContainerID))
	}
	slices.Sort(lost)
	devices := strings.Join(slices.Compact(lost), ", ")
	return cniplugin.Error(types.ErrTryAgainLater,
		"master %s is missing, and %s is not taken in its place: %s on %s by checkpoint (%s). Bring %s back, which relink restore does for a VLAN device; "+
			"or move what is on it for good by relink restore --parent OLD=NEW; or delete those pods",
		strings.Join(f.missing, ", "), f.master, printable.Count(len(claims), "attachment"), devices, printable.First(names, maxNamedClaims, ", "), devices)
}

// master returns the master to build on, unless something speaks against it.
func (a *addition) master(ns *kernel.Namespace) (parents.Master, error) {
	master, err := parents.Read(ns, a.Master)
	if err == nil {
		err = a.checkMaster(ns, master)
	}
	return master, err
}

func (a *addition) checkMaster(ns *kernel.Namespace, master parents.Master) error {
	if err := parents.CheckNotMember(master.Devices, master.LiveDevice); err != nil {
		return err
	}
	// What is in a sandbox is no other attachment's master.
	if len(master.Missing) > 0 && !a.LinkInContainer {
		return a.checkFallback(ns, master)
	}
	return nil
}

// checkFallback refuses a later master of the list while a checkpoint shows that the first is only
// away for a moment.
func (a *addition) checkFallback(host *kernel.Namespace, master parents.Master) error {
	records, unreadable, err := a.store.List()
	if err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	f := fallback{master: master.Name, missing: master.Missing}
	claims, err := f.claims(records, host.Exists)
	if err != nil {
		return err
	}
	// What is on a missing master in a sandbox that is gone does not come back.
	claims = slices.DeleteFunc(claims, func(c claim) bool { return kernel.NotFound(c.record.Namespace) })
	if len(claims) > 0 {
		return f.refusal(claims)
	}
	if len(unreadable) > 0 {
		// They would keep every pod from starting on a node that has no such master.
		fmt.Fprintf(os.Stderr, "%s: %s is taken in the place of %s, as no checkpoint speaks against it: %d can't be read, such as: %v\n",
			a.plugin.Name, f.master, strings.Join(f.missing, ", "), len(unreadable), unreadable[0].Err)
	}
	return nil
}
