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

// minAuditInterval bounds what audits cost a node.
const minAuditInterval = 10 * time.Second

// newAuditor returns what audits the node.
func newAuditor(opts options, asked serve.Sources) *gc.Auditor {
	return gc.New(gc.Options{
		Sources:  func() (audit.Sources, error) { return auditSources(opts, asked) },
		Interval: opts.auditEvery, OnlyAudit: !opts.gc, Log: opts.Log,
	})
}

// auditSources opens what an audit reads.
func auditSources(opts options, asked serve.Sources) (audit.Sources, error) {
	sources := audit.Sources{
		Store: opts.Store, Runtime: asked.Runtime, CacheDir: cnicache.DefaultDir, AllProcesses: sandbox.SeesAllProcesses(),
	}
	if err := sources.OpenLeases(""); err != nil {
		return sources, err
	}
	if asked.Owners == nil {
		sources.UnaskedReason = "no Kubernetes API is configured: nobody knows whether the owners of reserved addresses are gone, so all reservations are kept"
		return sources, nil
	}
	sources.Judge, sources.Asker = asked.Owners, asked.Owners
	return sources, nil
}

// auditedAgent is the agent with its last audit.
type auditedAgent struct {
	*agent.Agent
	audits *gc.Auditor
}

// Status returns the state of the agent with the last audit.
func (a auditedAgent) Status() control.Status {
	s := a.Agent.Status()
	s.Audit = a.audits.Last()
	return s
}
