package pool

import "slices"

// ConditionType is what a Condition is about.
//
// +kubebuilder:validation:Enum=Ready;Exhausted;Overlapping;Recovering;Terminating
type ConditionType string

// The conditions of a pool.
const (
	// Ready says that nodes may take addresses of the pool.
	Ready ConditionType = "Ready"
	// Exhausted says that each address of the pool is a node's or an owner's.
	Exhausted ConditionType = "Exhausted"
	// Overlapping says that another pool has addresses of this one.
	Overlapping ConditionType = "Overlapping"
	// Recovering says that the API has lost what nodes have.
	Recovering ConditionType = "Recovering"
	// Terminating says that somebody has deleted the pool.
	Terminating ConditionType = "Terminating"
)

// Reason says why a condition has its status.
//
// +kubebuilder:validation:Enum=Deleted;StateLost;InvalidSpec;OlderPool;Paused;Available;NoAddressFree;AddressesFree;YoungerPool;NoOtherPool;StateKnown;NotDeleted
type Reason string

// The reasons of the conditions. Ready is False by the first five, the first one that holds.
const (
	Deleted     Reason = "Deleted"
	StateLost   Reason = "StateLost"
	InvalidSpec Reason = "InvalidSpec"
	// OlderPool says that an older pool has addresses of this one, YoungerPool that a younger one has.
	OlderPool     Reason = "OlderPool"
	Paused        Reason = "Paused"
	Available     Reason = "Available"
	NoAddressFree Reason = "NoAddressFree"
	AddressesFree Reason = "AddressesFree"
	YoungerPool   Reason = "YoungerPool"
	NoOtherPool   Reason = "NoOtherPool"
	StateKnown    Reason = "StateKnown"
	NotDeleted    Reason = "NotDeleted"
)

// The values of Condition.Status.
const (
	True    = "True"
	False   = "False"
	Unknown = "Unknown"
)

// Condition is what holds of a pool, in the form of metav1.Condition.
type Condition struct {
	Type ConditionType `json:"type"`
	// Status says whether it holds.
	//
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status string `json:"status"`
	Reason Reason `json:"reason"`
	// Message says it to people.
	//
	// +kubebuilder:validation:MaxLength=8192
	Message string `json:"message"`
	// LastTransitionTime is since when the status is this one.
	//
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:MaxLength=64
	LastTransitionTime string `json:"lastTransitionTime"`
	// ObservedGeneration is the generation of the pool of which it holds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// MaxMessage is how many bytes of text conditions and recoveries have.
const MaxMessage = 4096

// Condition returns the condition of that type, the zero Condition if the controller has not written it.
func (s Status) Condition(t ConditionType) Condition {
	if i := slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type == t }); i >= 0 {
		return s.Conditions[i]
	}
	return Condition{}
}

// Problem says what a person has to correct before the pool gives anything new, empty for nothing.
func (s Status) Problem() string {
	i := slices.IndexFunc(s.Conditions, func(c Condition) bool { return c.Type != Ready && (c.Reason == InvalidSpec || c.Reason == OlderPool) })
	if i < 0 {
		return ""
	}
	return s.Conditions[i].Message
}
