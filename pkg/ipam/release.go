package ipam

import "github.com/relink-cni/relink/pkg/attachment"

// dueAtOnce bounds how many leases that have ended an ADD clears away, so that none
// pays for all. Each can leave one of its own behind.
const dueAtOnce = 64

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

// earlierBoots returns what was held in an earlier boot and is not given up yet. There
// is none but before the first change in a boot.
func (l *leases) earlierBoots() ([]Lease, error) {
	if l.thisBoot() {
		return nil, nil
	}
	var earlier []Lease
	err := l.each(func(lease Lease) error {
		if lease.State == Held && lease.BootID != l.store.bootID {
			earlier = append(earlier, lease)
		}
		return nil
	})
	return earlier, err
}

func (l *leases) thisBoot() bool { return string(l.meta.Get([]byte(keyBoot))) == l.store.bootID }

// newBoot gives up what was held in an earlier boot: no sandbox outlives one. It has
// nothing to do but for the first change in a boot.
func (l *leases) newBoot() error {
	if l.thisBoot() {
		return nil
	}
	earlier, err := l.earlierBoots()
	if err != nil {
		return err
	}
	for _, lease := range earlier {
		if err := l.giveUp(lease, "held in an earlier boot"); err != nil {
			return err
		}
	}
	return l.meta.Put([]byte(keyBoot), []byte(l.store.bootID))
}

// giveUp ends the holding of an address.
func (l *leases) giveUp(lease Lease, why string) error {
	left, ok := lease.givenUp(why, l.now)
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
	for _, lease := range held {
		if err := l.giveUp(lease, "released"); err != nil {
			return err
		}
	}
	return nil
}

// collect gives up what attachments hold that are not valid any more.
func (l *leases) collect(valid map[validAttachment]bool) error {
	var gone []Lease
	err := l.each(func(lease Lease) error {
		if lease.State == Held && !valid[validAttachment{lease.Attachment.ContainerID, lease.Attachment.IfName}] {
			gone = append(gone, lease)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, lease := range gone {
		if err := l.giveUp(lease, "its attachment is not valid any more"); err != nil {
			return err
		}
	}
	return nil
}

type validAttachment struct{ containerID, ifName string }
