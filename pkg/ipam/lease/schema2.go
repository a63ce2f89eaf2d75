package lease

// decodeLeaseV2 reads a lease of schema 2. There a holder had only the UID of its pod. Every owner was a pod.
func decodeLeaseV2(b []byte) (Lease, error) {
	l, err := decodeLease(b)
	l.nameHolders()
	return l, err
}

// nameHolders gives the holders of an older schema the name of their pod.
func (l *Lease) nameHolders() {
	if !l.hasOwner() {
		return
	}
	for i := range l.Holders {
		l.Holders[i].Pod.Namespace, l.Holders[i].Pod.Name = l.Owner.Namespace, l.Owner.Name
	}
	if l.Last.ContainerID != "" {
		l.Last.Pod.Namespace, l.Last.Pod.Name = l.Owner.Namespace, l.Owner.Name
	}
}
