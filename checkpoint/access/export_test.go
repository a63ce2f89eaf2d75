package access

import "time"

// SetPodsShare sets how long a look works on pods, before Run.
func (k *Keeper) SetPodsShare(d time.Duration) { k.podsShare = d }
