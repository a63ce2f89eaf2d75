package services

import (
	"context"

	"github.com/relink-cni/relink/test/kubeapi"
	"github.com/relink-cni/relink/test/kubenode"
)

// Programs are the paths of what makes Services work.
type Programs struct {
	kubeapi.Programs
	Proxy string
}

// Prepare puts etcd into the cache, and builds the kube-apiserver and the kube-proxy, unless the cache has them.
func Prepare(ctx context.Context) (p Programs, err error) {
	if p.Programs, err = kubeapi.Prepare(ctx); err != nil {
		return p, err
	}
	p.Proxy, err = kubenode.Program(ctx, "kube-proxy")
	return p, err
}
