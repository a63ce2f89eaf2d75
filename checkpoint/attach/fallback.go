package attach

import (
	"encoding/json"
	"errors"
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
	network string
	devices netstate.Devices
	master  netstate.LiveDevice
	missing []string
}

// readParents adds to the devices those that the records name.
func (f *fallback) readParents(host *kernel.Namespace, records []checkpoint.Record) error {
	read := map[string]bool{}
	for _, r := range records {
		for _, p := range r.Interface.Parents {
			if read[p.Name] {
				continue
			}
			read[p.Name] = true
			index, err := host.Index(p.Name)
			if err == nil {
				f.devices, err = host.AddStack(f.devices, index)
			}
			if err != nil && !errors.Is(err, kernel.ErrNoDevice) {
				return err
			}
		}
	}
	return nil
}

// claim is a checkpoint that speaks against a fallback: its attachment is on what is missing, the master or a bond, and comes back with that.
type claim struct {
	record checkpoint.Record
	lost   string
}

// claims returns what the records say against the fallback. It is a pure function. A claim is an
// attachment of the same network on a missing master. It can also be an attachment of any network on
// a missing bond that has the fallback as a member.
func (f fallback) claims(records []checkpoint.Record) []claim {
	var found []claim
	for _, r := range records {
		if c := f.claim(r); c.lost != "" {
			found = append(found, c)
		}
	}
	return found
}

// claim returns the record's claim, an empty one if it has none.
func (f fallback) claim(r checkpoint.Record) (c claim) {
	if r.Interface.ParentsInSandbox {
		return c
	}
	for i, p := range r.Interface.Parents {
		if _, exists := f.devices.ByName(p.Name); exists {
			continue
		}
		base := i == len(r.Interface.Parents)-1
		if f.memberOf(p) || c.lost == "" && r.Attachment.Network == f.network && (slices.Contains(f.missing, p.Name) || base && f.namesMissingMaster(r)) {
			c = claim{r, p.Name}
		}
	}
	return c
}

// memberOf says whether the record has the fallback's base as a member of the bond.
func (f fallback) memberOf(bond netstate.Device) bool {
	if bond.Bond == nil {
		return false
	}
	base := f.base()
	return slices.ContainsFunc(bond.Bond.Members, func(m netstate.Member) bool {
		// Two ports can share an address on the bus, so that does not count. A name can belong to
		// another NIC now.
		return m.Name == base.Name && !m.Contradicts(base.NIC) || m.PermanentMAC != "" && m.PermanentMAC == base.PermanentMAC
	})
}

// base is the lowest device below the fallback.
func (f fallback) base() netstate.Device {
	chain, err := f.devices.Chain(f.master.Index)
	if err != nil {
		return f.master.Device // Of which the ADD says that it can't be remembered.
	}
	return chain[len(chain)-1]
}

// namesMissingMaster says whether the attachment's configuration names a master that is missing. It can name
// it by an alternative name, which is not recorded.
func (f fallback) namesMissingMaster(r checkpoint.Record) bool {
	var config struct {
		Master cniplugin.Names `json:"master"`
	}
	return json.Unmarshal(r.CNI.Config, &config) == nil &&
		slices.ContainsFunc(config.Master, func(name string) bool { return slices.Contains(f.missing, name) })
}

// liveClaims returns the claims whose sandboxes still exist. The others do not come back.
func liveClaims(claims []claim) []claim {
	return slices.DeleteFunc(claims, func(c claim) bool {
		return kernel.NotFound(c.record.Namespace)
	})
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
		strings.Join(f.missing, ", "), f.master.Name, printable.Count(len(claims), "attachment"), devices, printable.First(names, maxNamedClaims, ", "), devices)
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
	f := fallback{network: a.Name, devices: master.Devices, master: master.LiveDevice, missing: master.Missing}
	if err := f.readParents(host, records); err != nil {
		return err
	}
	if claims := liveClaims(f.claims(records)); len(claims) > 0 {
		return f.refusal(claims)
	}
	if len(unreadable) > 0 {
		// They would keep every pod from starting on a node that has no such master.
		fmt.Fprintf(os.Stderr, "%s: %s is taken in the place of %s, as no checkpoint speaks against it: %d can't be read, such as: %v\n",
			a.plugin.Name, f.master.Name, strings.Join(f.missing, ", "), len(unreadable), unreadable[0].Err)
	}
	return nil
}
