package owner

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// AskTimeout is how long an Asker takes at most.
const AskTimeout = 2 * time.Second

var (
	// ErrNoAsker says that there is nobody to ask on this node. It comes with ErrUnavailable.
	ErrNoAsker = errors.New("no relink-agent runs on this node")
	// ErrUnavailable says that nobody can answer now: no agent runs, the API does not answer, refuses, or does not know
	// the pod. The same question may be answered later.
	ErrUnavailable = errors.New("the owner of the address is not known now")
	// ErrInvalid says that the pod asks for something that cannot be, such as an annotation that is no address. The
	// error has the key, the value and what to do.
	ErrInvalid = errors.New("the pod asks for what cannot be")
	// ErrDiffers says that an IPAMClaim has other addresses by now.
	ErrDiffers = errors.New("the IPAMClaim has other addresses")
)

// Question is what a plugin asks about the pod of an attachment.
type Question struct {
	Pod     attachment.Pod `json:"pod"`
	Network string         `json:"network"`
	IfName  string         `json:"ifName"`
	// Claims says that the network has "allowPersistentIPs": the answer has the pod's IPAMClaim, if it names one.
	Claims bool `json:"claims,omitempty"`
}

// Answer is what the API knows.
type Answer struct {
	// Owner is never nobody.
	Owner attachment.Owner `json:"owner"`
	// Persistent says that the owner outlives its pods. Its addresses wait for its next pod.
	Persistent bool `json:"lasts,omitempty"`
	// SinglePod says that the owner has one pod at a time on each interface. Its next pod gets the address although the
	// sandbox before may still be there. Two pods of another owner never share an address.
	SinglePod bool `json:"alone,omitempty"`
	// Siblings are the UIDs of the other pods in which the same run of a virtual machine is or was: it migrates from one to the
	// other.
	Siblings []string `json:"siblings,omitempty"`
	// Static is nil if the pod asks for no address of the network.
	Static *Static `json:"static,omitempty"`
	// Claim is nil if the pod names no IPAMClaim for the interface, or if nobody asked.
	Claim *Claim `json:"claim,omitempty"`
}

// Static are the addresses that an annotation of the pod asks for.
type Static struct {
	// Key is the annotation's.
	Key string `json:"key"`
	// Addresses are in the order of the annotation. The pod gets one of each range set.
	Addresses []netip.Addr `json:"addresses"`
	// Replica says which of a range set's addresses the pod gets: 0 for the first one. Nil stands for the first one that
	// nobody else has.
	Replica *int `json:"replica,omitempty"`
}

// Claim is an IPAMClaim (k8s.cni.cncf.io/v1alpha1): the addresses of a virtual machine's interface, in the pod's namespace.
type Claim struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Version is the resource version that was read. The API takes the addresses only for that one.
	Version string `json:"version,omitempty"`
	// IPs are the addresses of its status. If there are none, the addresses that the pod gets belong there.
	IPs []netip.Prefix `json:"ips,omitempty"`
}

// Fulfilment are addresses that belong into the status of a claim.
type Fulfilment struct {
	Pod   attachment.Pod `json:"pod"`
	Claim Claim          `json:"claim"`
	IPs   []netip.Prefix `json:"ips"`
}

// Asker answers for one pod. Its methods may be called at any time.
type Asker interface {
	// Ask returns what the API knows of the pod. errors.Is matches ErrUnavailable and ErrInvalid.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Fulfil writes the addresses into the claim's status, unless they are there already. errors.Is matches
	// ErrUnavailable, and ErrDiffers if the claim has others or is another one by now: nothing is overwritten.
	Fulfil(ctx context.Context, f Fulfilment) error
}

// Standing says whether an owner is still there.
type Standing string

// The values of Standing.
const (
	Exists Standing = "lives"
	// Gone says that no pod of the owner will come any more: the API has answered that the object does not exist, that
	// another one has its name, or that it needs fewer pods.
	Gone Standing = "gone"
	// Unknown says that the API has not answered, or that it does not tell by this owner.
	Unknown Standing = "unknown"
)

// Judgement says whether an owner is still there, and how that is known.
type Judgement struct {
	Owner    attachment.Owner `json:"owner"`
	Standing Standing         `json:"standing"`
	// Reason is the evidence in words.
	Reason string `json:"why"`
	// RemotePodUID is the UID of the owner's pod, if the owner lives, has one pod at a time by an ordinal, and this pod is on another
	// node. It is empty if any of that is not known. Location says where the pod is, or why that is not known.
	RemotePodUID string `json:"elsewhere,omitempty"`
	PodLocation  string `json:"where,omitempty"`
	// Cluster is the UID of the namespace kube-system of the API that has judged. It is empty if the API does not tell it: NoCluster
	// says why.
	Cluster   string `json:"cluster,omitempty"`
	NoCluster string `json:"noCluster,omitempty"`
}

// Judge asks the API itself about each owner, never a cache. The judgements are in the order of the owners. An owner
// that cannot be judged is Unknown: that is no error, and does not stop the rest.
type Judge interface {
	Judge(ctx context.Context, owners []attachment.Owner) []Judgement
}
