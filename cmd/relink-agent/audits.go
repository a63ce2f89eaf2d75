package main

import (
	"time"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/gc"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/sandbox"
)

const (
	// leastAuditEvery bounds what audits cost a node.
	leastAuditEvery = 10 * time.Second
	// firstAudit is the time from the agent's start to the first audit: at a boot the node has other work.
	firstAudit = time.Minute
)

// newKeeper returns what audits the node.
func newKeeper(opts options, asked serve.Sources) *gc.Keeper {
	return gc.New(gc.Options{
		Sources: func() (audit.Sources, error) { return auditSources(opts, asked) },
		First:   min(firstAudit, opts.auditEvery), Every: opts.auditEvery, OnlyAudit: !opts.gc, Log: opts.log,
	})
}

// auditSources opens what an audit reads.
func auditSources(opts options, asked serve.Sources) (audit.Sources, error) {
	from := audit.Sources{
		Store: opts.store, Runtime: asked.Runtime, CacheDir: cnicache.DefaultDir, AllProcesses: sandbox.SeesAllProcesses(),
	}
	if err := from.OpenLeases(""); err != nil {
		return from, err
	}
	if asked.Owners == nil {
		from.Nobody = "no Kubernetes API is configured: nobody knows whether the owners of reserved addresses are gone, so all reservations are kept"
		return from, nil
	}
	from.Judge, from.Asker = asked.Owners, asked.Owners
	return from, nil
}

// audited is the agent with its last audit.
type audited struct {
	*agent.Agent
	audits *gc.Keeper
}

// Status returns the state of the agent with the last audit.
func (a audited) Status() control.Status {
	s := a.Agent.Status()
	s.Audit = a.audits.Last()
	return s
}
