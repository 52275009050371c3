// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/tool/params"
)

// Decision is what becomes of a call. The zero value is Deny.
type Decision int

// The decisions.
const (
	Deny  Decision = iota // it does not run
	Allow                 // it runs under Verdict.Plan
	Ask                   // it runs under Verdict.Plan after a yes
)

// String is the word of records and JSON: deny, allow or ask.
func (d Decision) String() string {
	switch d {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	}
	return "deny"
}

// Verdict is the answer to one Call.
type Verdict struct {
	Decision Decision
	Rule     string // what refused it: file:line, or "built-in: …"; empty on Allow
	Reason   string // a sentence for people
	Hint     string // what would allow it: the line of YAML, the flag to drop
	Plan     Plan   // what is in force; zero on Deny

	Question *Question // of Ask: whom to ask what; nil otherwise

	// Faults are why it is refused when a tool's arguments do not fit: nothing was
	// decided about what they ask for.
	Faults []params.Fault
}

// Misfit is why a tool was not called whose arguments do not fit: an ErrInvalid, with
// all that does not for who tells the caller. Of what records do not have it is not
// said what it was.
type Misfit struct {
	Faults  []params.Fault // by path
	invalid *sandbox.Error
}

// Error is for the caller.
func (m *Misfit) Error() string { return m.invalid.Error() }

// Unwrap gives the ErrInvalid.
func (m *Misfit) Unwrap() error { return m.invalid }

// Invalid says that nothing was decided about what the call asks for, since it cannot
// be meant: another policy would refuse it, too.
func (v Verdict) Invalid() bool {
	return v.Decision == Deny && (v.Rule == ruleValid || len(v.Faults) > 0)
}

// Err is nil on Allow and an ErrDenied for people otherwise: of Ask it says that no
// question was put. What cannot be meant is an ErrInvalid, and a [Misfit] where
// arguments do not fit.
func (v Verdict) Err() error {
	switch v.Decision {
	case Allow:
		return nil
	case Ask:
		return v.needsApproval()
	}
	err := &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: v.Reason, Hint: v.Hint, Rule: v.Rule}
	if v.Invalid() { // whatever the policy
		err.Op, err.Kind = "", sandbox.ErrInvalid
	}
	if v.Rule == ruleValid {
		err.Rule = ""
	}
	if len(v.Faults) > 0 {
		return &Misfit{v.Faults, err}
	}
	return err
}

// Plan is what is in force for an allowed call.
type Plan struct {
	Isolation string         `json:"isolation"`
	Limits    sandbox.Limits `json:"limits"` // Explicit: written in a file or by a flag
	Watch     []WatchRule    `json:"watch,omitempty"`
	Cooling   *PlanCooling   `json:"cooling,omitempty"` // nil: nothing goes cold by itself

	Workspace  *PlanMount     `json:"workspace,omitempty"`
	Mounts     []PlanMount    `json:"mounts,omitempty"` // the file's first, then the call's
	Volumes    []PlanVolume   `json:"volumes,omitempty"`
	Toolchains []PlanPath     `json:"toolchains,omitempty"`
	PathTools  *PlanPathTools `json:"path_toolchains,omitempty"`
	Rootfs     *PlanPath      `json:"rootfs,omitempty"`
	Image      *PlanImage     `json:"image,omitempty"`

	Env      map[string]string `json:"-"` // values are never recorded
	Writable []string          `json:"writable,omitempty"`
	Deny     []string          `json:"deny,omitempty"` // Globs
	Collect  []CollectWish     `json:"collect,omitempty"`
	// CollectOverwrite has files give way that exist where Collect brings others.
	CollectOverwrite bool          `json:"collect_overwrite,omitempty"`
	CollectLimits    CollectLimits `json:"collect_limits,omitzero"`
	// MayCollect are the Globs that the file lets out; a call still names what
	// it takes. Empty without a file.
	MayCollect []string `json:"may_collect,omitempty"`

	Changes *PlanChanges `json:"changes,omitempty"` // nil: nothing is kept

	Network *PlanNetwork `json:"network,omitempty"` // nil is none

	Commands *PlanCommands `json:"commands,omitempty"` // nil: any
	// Argv is what is to be started in the place of the call's, which would first
	// read unjudged files; nil is the call's.
	Argv []string  `json:"-"`
	Code *PlanCode `json:"code,omitempty"` // nil: no text is read

	Approvals *PlanApprovals `json:"approvals,omitempty"` // nil: no file says who is asked
	Rates     []PlanRate     `json:"rates,omitempty"`     // of the tool that was called

	Root bool `json:"root,omitempty"`
	// Sudoer is a user who may ask for root by its name, in a call of its own.
	Sudoer     bool `json:"sudoer,omitempty"`
	BestEffort bool `json:"best_effort,omitempty"`

	// Overridden names each limit of a file that --override loosened, for the
	// record: "limits.memory: 1GiB instead of 256MiB (caisson.yaml:4)".
	Overridden []string `json:"overridden,omitempty"`

	// From says where each clause comes from: file:line, "flag" or "default".
	// Its keys are the clauses of Explain: "limits.memory", "env.set.MODE".
	From map[string]string `json:"from,omitempty"`
}

// PlanPath is a host path of a plan.
type PlanPath struct {
	Source string `json:"source"` // absolute and clean
	// Beneath are the sources named in policy files that allow this one. They
	// were compared as text; the object that is opened must lie beneath each.
	Beneath []string `json:"beneath,omitempty"`
}

// PlanImage is the container image of a plan.
type PlanImage struct {
	// Ref is the reference in its one form.
	Ref string `json:"ref"`
	// Path is the file or directory that Ref names; nil where it is in a
	// registry.
	Path *PlanPath `json:"path,omitempty"`
}

// PlanMount is a mount of a plan.
type PlanMount struct {
	PlanPath
	Target string         `json:"target,omitempty"` // empty is the base name in the working directory
	Access sandbox.Access `json:"access"`
	// GitWrite says that code may write in the repositories of a read-write mount.
	GitWrite bool `json:"git_write,omitempty"`
	// Shared says that other sandboxes may have a read-write mount, too.
	Shared bool   `json:"shared,omitempty"`
	From   string `json:"from"` // file:line or "flag"
}

// refusal is a Deny in the making.
type refusal struct {
	rule, reason, hint string
	faults             []params.Fault // of arguments
}

func refuse(rule, hint, format string, args ...any) *refusal {
	return &refusal{rule: rule, hint: hint, reason: fmt.Sprintf(format, args...)}
}

// ruleValid is what refuses a call that cannot be meant, whatever the policy.
const ruleValid = "built-in: valid requests"

// cannotMean refuses a call by that rule.
func cannotMean(hint, format string, args ...any) *refusal {
	return refuse(ruleValid, hint, format, args...)
}

// refuseInvalid refuses what a parser of this package does not take.
func refuseInvalid(what string, err error) *refusal {
	return cannotMean(sandbox.Hint(err), "%s: %v", what, err)
}

func (r *refusal) verdict() Verdict {
	return Verdict{Decision: Deny, Rule: r.rule, Reason: strings.ToValidUTF8(r.reason, "\uFFFD"), Hint: r.hint, Faults: r.faults}
}
