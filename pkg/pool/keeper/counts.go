package keeper

// Counts are what a keeper has done since it was made.
type Counts struct {
	// Writes are changes of the API that have succeeded.
	Writes int
	// Taken and Returned are blocks, HandedOver are addresses that another node has asked for.
	Taken, Returned, HandedOver int
}

// Counts returns what was done so far.
func (k *Keeper) Counts() Counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counts
}

func (k *Keeper) count(f func(*Counts)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&k.counts)
}
