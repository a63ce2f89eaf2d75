package ipam

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Call is one invocation of relink-ipam: by a runtime, or in the process of the interface
// plugin that the configuration is for.
type Call struct {
	args   *skel.CmdArgs
	config cniplugin.Network
	// network is nil until an ADD or a STATUS reads the configuration.
	network *network
	// stderr takes what is no error but worth saying.
	stderr io.Writer
	// seesAll says whether the processes that are seen here are all of the node's.
	seesAll func() bool
	// owners answers what the Kubernetes API knows of the pod. It is nil if nobody can be asked.
	owners owner.Asker
	// answer is what owners has answered. It is nil before, and if there was no answer.
	answer *owner.Answer
	// ownerAsked says that owners was asked.
	ownerAsked bool
	// standalone says that relink-ipam is a program of its own: nobody probes for its addresses.
	standalone bool
	// store is nil until it is needed.
	store *lease.Store
}

// New returns the call with those arguments. config is their configuration, decoded. An ADD asks owners about the pod, and
// for addresses of pools, if it is a pool.Agent, too.
// Other calls need nobody to ask.
func New(args *skel.CmdArgs, config cniplugin.Network, owners owner.Asker) *Call {
	return &Call{args: args, config: config, owners: owners, stderr: os.Stderr, seesAll: sandbox.SeesAllProcesses}
}

// Version is the cniVersion of the configuration.
func (c *Call) Version() string { return c.config.CNIVersion }

// Read returns the error that an ADD or a STATUS would have from the configuration, CNI_ARGS and the
// environment. It opens no file of a store.
func (c *Call) Read() error {
	_, _, err := c.prepare()
	return err
}

// readAll reads CNI_ARGS and all of the configuration once.
func (c *Call) readAll() (network, error) {
	if c.network != nil {
		return *c.network, nil
	}
	env, err := cniplugin.ParseArgs(c.args.Args)
	if err != nil {
		return network{}, err
	}
	s, errs := readSection(c.config)
	if err := cniplugin.FirstError(errs); err != nil {
		return network{}, err
	}
	n := s.parse(c.config, env, &errs)
	if err := cniplugin.FirstError(errs); err != nil {
		return network{}, err
	}
	c.network = &n
	return n, nil
}

// openStore opens the store once. It reads as little of the configuration as a DEL needs: a DEL then works with a configuration
// that an ADD would refuse by now.
func (c *Call) openStore() (*lease.Store, error) {
	if c.store != nil {
		return c.store, nil
	}
	var config storeConfig
	if err := decodeIfAny("ipam", c.config.IPAM.JSON, &config); err != nil {
		return nil, err
	}
	var errs cniplugin.Problems
	config.check(c.config.Name, &errs)
	if err := cniplugin.FirstError(errs); err != nil {
		return nil, err
	}
	store, err := lease.Open(config.DataDir, config.name(c.config.Name))
	if err != nil {
		return nil, withCode(err)
	}
	c.store = store
	return store, nil
}

// prepare reads all of the configuration and opens the store.
func (c *Call) prepare() (network, *lease.Store, error) {
	n, err := c.readAll()
	if err != nil {
		return network{}, nil, err
	}
	store, err := c.openStore()
	return n, store, err
}

// currentPolicy is the policy in the configuration as it is at a DEL: a "sticky" that was added after the ADD counts from then on.
func (c *Call) currentPolicy() (p lease.Policy) {
	var keys policyConfig
	var errs cniplugin.Problems
	errs.Add(decodeIfAny("ipam", c.config.IPAM.JSON, &keys))
	if policy := keys.policy(&errs); len(errs) == 0 {
		return policy
	}
	return p
}

func (c *Call) key() attachment.Key {
	return attachment.Key{Network: c.config.Name, ContainerID: c.args.ContainerID, IfName: c.args.IfName}
}

// request is what the ADD asks the store for.
func (c *Call) request(n network) (lease.Request, error) {
	key, pod := c.key(), n.pod
	if err := key.Validate(); err != nil {
		return lease.Request{}, cniplugin.Error(types.ErrInvalidEnvironmentVariables, "%v", err)
	}
	if !utf8.ValidString(strings.Join([]string{pod.Namespace, pod.Name, pod.UID}, "/")) {
		return lease.Request{}, cniplugin.EnvError("CNI_ARGS", c.args.Args, "must be UTF-8: an address is found by its pod's name")
	}
	byName := pod.Owner()
	if (n.policy.Sticky || n.byOwner()) && byName == (attachment.Owner{}) {
		return lease.Request{}, cniplugin.EnvError("CNI_ARGS", c.args.Args,
			fmt.Sprintf(`must have K8S_POD_NAMESPACE and K8S_POD_NAME: with "sticky": %q an address is kept for the pod`, n.Sticky))
	}
	r := lease.Request{
		Attachment: key, Owner: byName, Pod: pod, Namespace: readNamespace(c.args.Netns), Sets: n.sets, Policy: n.policy,
		Pools: n.pools, Probes: !c.standalone, RequestedAddresses: addressesOf(n.requested), CandidateAddresses: addressesOf(n.candidates),
	}
	r.Policy.ByOwner = n.byOwner()
	if c.answer != nil {
		applyOwner(&r, *c.answer)
		if c.answer.Static != nil {
			r.Replica = c.answer.Static.Replica
		}
	}
	return r, nil
}

// readNamespace returns what can be known of the sandbox's namespace. An ADD works without it. Later it
// tells whether the sandbox is gone.
func readNamespace(path string) attachment.Namespace {
	if path == "" {
		return attachment.Namespace{}
	}
	path = identity.Resolve(path)
	id, err := identity.Read(path)
	if err != nil {
		return attachment.Namespace{Path: path}
	}
	return id
}
