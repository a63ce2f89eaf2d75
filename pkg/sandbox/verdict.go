package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict says whether a sandbox, or its network namespace, is still there.
type Verdict string

// The verdicts. Only VerdictGone is a proof that nobody is in the sandbox, and that nobody will give up what it has.
const (
	VerdictGone    Verdict = "gone"
	VerdictAlive   Verdict = "alive"
	VerdictUnknown Verdict = "unknown"
	// VerdictDELDue says that the network namespace is gone, and that the runtime still knows the sandbox: it owes a DEL.
	VerdictDELDue Verdict = "DEL due"
)

// Judgement is a verdict and what each source says, for people.
type Judgement struct {
	Verdict  Verdict  `json:"verdict"`
	Evidence []string `json:"evidence"`
}

// Reason is the evidence in one line.
func (j Judgement) Reason() string { return strings.Join(j.Evidence, "; ") }

// With returns the judgement with one more piece of evidence.
func (j Judgement) With(v Verdict, format string, args ...any) Judgement {
	return Judgement{v, append(slices.Clip(j.Evidence), fmt.Sprintf(format, args...))}
}
