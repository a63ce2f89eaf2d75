package hostends

import "time"

// SetPodsShare sets how long a look works on pods, before Run.
func (k *Reconciler) SetPodsShare(d time.Duration) { k.podsBudget = d }
