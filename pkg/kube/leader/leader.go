package leader

import (
	"context"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/relink-cni/relink/pkg/kube"
)

// The times of the election, as the components of Kubernetes have them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Election is which of several processes leads.
type Election struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Identity tells the processes apart.
	Identity string
	Log      *slog.Logger
}

// Lead calls lead each time that this process becomes the leader, until ctx ends. The context of lead ends when another
// process can lead.
func Lead(ctx context.Context, client *kube.Client, e Election, lead func(context.Context)) error {
	api, err := coordination.NewForConfig(client.Config())
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}, Client: api,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: lead,
			OnStoppedLeading: func() { e.Log.Info("this process does not lead", "lease", e.Name) },
			OnNewLeader:      func(identity string) { e.Log.Info("a process leads", "lease", e.Name, "who", identity) },
		},
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	return nil
}
