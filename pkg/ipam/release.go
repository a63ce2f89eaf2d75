package ipam

import (
	"errors"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
)

// dueAtOnce bounds how many leases that have ended an ADD clears away, so that none
// pays for all. Each can leave one of its own behind.
const dueAtOnce = 64

// settle makes free what nobody has any more, before somebody asks for it.
func (l *leases) settle() error {
	return errors.Join(l.newBoot(), l.endDue())
}

// endDue makes free what is reserved or in quarantine no longer.
func (l *leases) endDue() error {
	due, err := l.ended(dueAtOnce)
	if err != nil {
		return err
	}
	for _, lease := range due {
		if err := l.remove(lease); err != nil {
			return err
		}
	}
	return nil
}

// earlierBoot is why what newBoot gives up is given up.
const earlierBoot = "held in an earlier boot"

// newBoot gives up what was held in an earlier boot: no sandbox outlives one. It has
// nothing to do but for the first time in a boot.
func (l *leases) newBoot() error {
	bootID, err := l.store.boot()
	if err != nil || string(l.meta.Get([]byte(keyBoot))) == bootID {
		return err
	}
	earlier, err := l.ofEarlierBoots()
	if err != nil {
		return err
	}
	for _, lease := range earlier {
		if err := l.giveUp(lease, earlierBoot); err != nil {
			return err
		}
	}
	return l.meta.Put([]byte(keyBoot), []byte(bootID))
}

// ofEarlierBoots returns what newBoot gives up in this boot, or has yet to.
func (l *leases) ofEarlierBoots() ([]Lease, error) {
	bootID, err := l.store.boot()
	if err != nil || string(l.meta.Get([]byte(keyBoot))) == bootID {
		return nil, err
	}
	var earlier []Lease
	err = l.each(func(lease Lease) error {
		if l.isOfEarlierBoot(lease) {
			earlier = append(earlier, lease)
		}
		return nil
	})
	return earlier, err
}

// isOfEarlierBoot says whether the lease is held by what can't be there any more.
func (l *leases) isOfEarlierBoot(lease Lease) bool {
	bootID, err := l.store.boot()
	return err == nil && lease.State == Held && lease.BootID != bootID
}

// giveUp ends the holding of an address.
func (l *leases) giveUp(lease Lease, why string) error {
	left, ok := lease.GivenUp(why, l.now)
	if !ok {
		return l.remove(lease)
	}
	return l.put(left)
}

// releaseAll gives up whatever the attachment holds: what another holds, of the same
// owner too, is not touched.
func (l *leases) releaseAll(a attachment.Key) error {
	held, err := l.heldBy(a)
	if err != nil {
		return err
	}
	if len(held) == 0 {
		return errUnchanged
	}
	for _, lease := range held {
		if err := l.giveUp(lease, "released"); err != nil {
			return err
		}
	}
	return nil
}

// collect gives up what attachments hold that are not valid any more.
func (l *leases) collect(valid map[types.GCAttachment]bool) error {
	var gone []Lease
	err := l.each(func(lease Lease) error {
		if lease.State == Held && !valid[types.GCAttachment{ContainerID: lease.Attachment.ContainerID, IfName: lease.Attachment.IfName}] {
			gone = append(gone, lease)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(gone) == 0 {
		return errUnchanged
	}
	for _, lease := range gone {
		if err := l.giveUp(lease, "its attachment is not valid any more"); err != nil {
			return err
		}
	}
	return nil
}
