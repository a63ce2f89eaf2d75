package ipam

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// policyConfig are the keys that host-local does not have.
type policyConfig struct {
	Exclude           []string        `json:"exclude"`
	Sticky            string          `json:"sticky"`
	Retain            *string         `json:"retain"`
	Quarantine        *string         `json:"quarantine"`
	ConflictDetection json.RawMessage `json:"conflictDetection"`
	// StatusExhausted makes STATUS fail while a range set has no address to give.
	StatusExhausted bool `json:"statusExhausted"`
	// Static says who may ask for an address. Without it, every pod may.
	Static *staticConfig `json:"static"`
}

// stickyOwner is the value of "sticky" that keeps addresses for the pods' owners.
const stickyOwner = "owner"

// byOwner says that the pod's owner decides whether its address is kept.
func (c policyConfig) byOwner() bool { return c.Sticky == stickyOwner }

// Detection is how an address is probed for on the network before it is used.
type Detection struct {
	// Probes is how many probes are sent for each address.
	Probes int
	// Wait is how long to wait for an answer after each probe.
	Wait time.Duration
}

// policy returns the policy. It adds everything that is wrong with it to errs.
func (c policyConfig) policy(errs *cniplugin.Problems) lease.Policy {
	p := lease.Policy{Quarantine: lease.DefaultQuarantine}
	switch c.Sticky {
	case "", "none", stickyOwner: // Only an ADD learns the owner. A DEL must not keep the address of a pod without one.
	case "pod":
		p.Sticky = true
	default:
		errs.Refuse("ipam.sticky", c.Sticky, "must be none, pod or owner")
	}
	if c.Retain != nil {
		retain, err := time.ParseDuration(*c.Retain)
		switch {
		case !p.Sticky && !c.byOwner():
			errs.Refuse("ipam.retain", *c.Retain, `needs "sticky": "pod" or "sticky": "owner": no other address is retained`)
		case err != nil || retain <= 0:
			errs.Refuse("ipam.retain", *c.Retain, "must be a duration such as 24h; leave it out to retain the address until it is released")
		default:
			p.Retain = lease.Duration(retain)
		}
	}
	if c.Quarantine != nil {
		quarantine, err := time.ParseDuration(*c.Quarantine)
		if err != nil || quarantine < 0 {
			errs.Refuse("ipam.quarantine", *c.Quarantine, "must be a duration such as 60s, or 0s for none")
		}
		p.Quarantine = lease.Duration(quarantine)
	}
	return p
}

// Defaults of conflict detection. RFC 5227 has three probes too (PROBE_NUM), but seconds
// between them: a pod would wait that long for its start.
const (
	defaultProbes = 3
	defaultWait   = 200 * time.Millisecond
	maxProbes     = 10
	maxWait       = 2 * time.Second
)

// detection reads "conflictDetection": true, false or {"probes": 3, "wait": "200ms"}. It returns nil for off.
func (c policyConfig) detection(errs *cniplugin.Problems) *Detection {
	const key = "ipam.conflictDetection"
	d := &Detection{Probes: defaultProbes, Wait: defaultWait}
	switch string(c.ConflictDetection) {
	case "", "null", "false":
		return nil
	case "true":
		return d
	}
	var written struct {
		Probes *int    `json:"probes"`
		Wait   *string `json:"wait"`
	}
	if err := json.Unmarshal(c.ConflictDetection, &written); err != nil {
		errs.Refuse(key, cniplugin.RawValue(c.ConflictDetection), `must be true, false or an object such as {"probes": 3, "wait": "200ms"}`)
		return nil
	}
	if written.Probes != nil {
		if d.Probes = *written.Probes; d.Probes < 1 || d.Probes > maxProbes {
			errs.Refuse(key+".probes", d.Probes, fmt.Sprintf("must be between 1 and %d", maxProbes))
			return nil
		}
	}
	if written.Wait != nil {
		var err error
		if d.Wait, err = time.ParseDuration(*written.Wait); err != nil || d.Wait <= 0 || d.Wait > maxWait {
			errs.Refuse(key+".wait", *written.Wait, fmt.Sprintf("must be a duration such as 200ms, at most %s", maxWait))
			return nil
		}
	}
	return d
}

// staticConfig is "static": who may ask for an address. Whoever may write a pod can write an annotation. In a cluster that
// is shared, the network says whose pods may choose.
type staticConfig struct {
	// Namespaces are those whose pods may ask. Nil stands for all.
	Namespaces *[]string `json:"namespaces"`
}

// check refuses each name that no namespace can have.
func (c *staticConfig) check(errs *cniplugin.Problems) {
	if c == nil || c.Namespaces == nil {
		return
	}
	for i, name := range *c.Namespaces {
		if err := (attachment.Pod{Namespace: name, Name: "any"}).Validate(); err != nil {
			errs.Refuse(fmt.Sprintf("ipam.static.namespaces[%d]", i), name, "must be the name of a namespace: "+err.Error())
		}
	}
}

// allows says whether a pod of the namespace may ask for an address.
func (c *staticConfig) allows(namespace string) bool {
	return c == nil || c.Namespaces == nil || slices.Contains(*c.Namespaces, namespace)
}

// checkStatic returns an error if the pod asks for an address and must not. An IPAMClaim's addresses were given by the network
// before.
func (n network) checkStatic() error {
	if n.Static.allows(n.pod.Namespace) {
		return nil
	}
	for _, q := range append(slices.Clone(n.requested), n.candidates...) {
		if !q.fromClaim {
			return q.refuse(fmt.Sprintf("cannot be given: pods of the namespace %q may not ask for an address of this network (%q)", n.pod.Namespace, "ipam.static.namespaces"))
		}
	}
	return nil
}
