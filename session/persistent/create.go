// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/registry"
)

// Create says what sandbox is wanted. The zero value is one of the template
// base, as the key's policy has it, that is killed when its time is over.
type Create struct {
	// Frontend is where the request came in: "e2b".
	Frontend string

	// Template names what it is made of; empty is "base".
	Template string
	// Snapshot, when not empty, is the ID of a snapshot that it goes on from, with
	// that one's environment; Env comes on top of its variables.
	Snapshot string
	// Metadata are the caller's own words. They decide nothing.
	Metadata map[string]string
	// Notes are the frontend's own, and come back with the sandbox. With Snapshot they come
	// on top of that one's PortNotes.
	Notes map[string]string
	// Env are variables that every program in it gets. They are in no record,
	// list or log.
	Env map[string]string

	Lifetime

	// Network changes what the key's policy grants; nil takes that.
	Network *NetworkWish
	// Writable are directories, absolute and inside, that it has besides those of
	// the policy, where that lets it: private, empty at first.
	Writable []string
	// Limits tighten those of the key; a field counts when Explicit names it.
	Limits sandbox.Limits
	// Isolation names the level; empty is the policy's.
	Isolation string

	// Wishes are what the owner of this host asks for besides: files of it, an image,
	// secrets, best effort. A key that has no Owner is refused them. The fields above count
	// for those that a policy.Call has, too. What is made of a snapshot has none.
	Wishes *policy.Call
}

// Lifetime says when a sandbox ends, and what happens then.
type Lifetime struct {
	// Timeout is how long it lives, unless it is extended; 0 is the profile's, and
	// Longest the longest that its key may have. A wall limit ends it earlier, however often it is extended.
	Timeout time.Duration
	// Idle, when not 0, ends it earlier when it goes unused for so long: when no
	// action begins, ends or is under way.
	Idle time.Duration
	// OnTimeout is what happens then; empty is registry.Kill.
	OnTimeout registry.Action
	// AutoResume wakes it when something in it is asked for while it is paused.
	AutoResume bool
}

// PortNotes begins the names of notes about ports, of the frontend that serves them: they
// hold for what is made of a snapshot, too, through whichever frontend.
const PortNotes = "e2b."

// NetworkWish asks for a part of what a policy grants.
type NetworkWish struct {
	// None is no network at all.
	None bool
	// Allow are entries of an allow-list, each within the policy's; empty is all
	// of that. Deny are taken away from it. See egress/rule.
	Allow, Deny []string
	// Headers are set in requests that are let through. Their values are secrets.
	Headers []wire.Header
}

// Template is what sandboxes are made of. The operator names it.
type Template struct {
	// Image is a container image; empty is the host's toolchain.
	Image string
	// Root lets programs become the sandbox's own root, where the key's policy
	// allows root and the level has one that is not the host's. Elsewhere the
	// sandbox is made without, and a program that is to be root is refused.
	Root bool
}

// BaseTemplate is what a sandbox is made of that names no template.
const BaseTemplate = "base"

// InterpreterTemplate is what E2B's code interpreter asks for. Where no template of that name
// was built, it is the base one.
const InterpreterTemplate = "code-interpreter-v1"

// Templates are the names of those that there are, sorted.
func (b *Sandboxes) Templates() []string {
	names := slices.Sorted(maps.Keys(b.o.Templates))
	if at, found := slices.BinarySearch(names, BaseTemplate); !found {
		names = slices.Insert(names, at, BaseTemplate)
	}
	return names
}

// Bounds of what a caller may have kept.
const (
	maxMetadata  = 64
	maxWords     = 16 << 10 // bytes of all metadata
	maxVariables = 256 << 10
	maxName      = 256
)

// check refuses what cannot be meant.
func (c *Create) check() error {
	invalid := func(op, problem, hint string) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: problem, Hint: hint}
	}
	size := func(m map[string]string) (n int) {
		for k, v := range m {
			n += len(k) + len(v)
		}
		return n
	}
	switch {
	case len(c.Metadata) > maxMetadata || size(c.Metadata) > maxWords:
		return invalid("metadata", fmt.Sprintf("it has more than %d entries or %s", maxMetadata, session.Size(maxWords)), "keep large things in files of the sandbox")
	case size(c.Env) > maxVariables:
		return invalid("variables", "they are longer than "+session.Size(maxVariables)+" together", "write them into a file of the sandbox")
	case c.Idle < 0:
		return invalid("idle", "it is negative", "")
	case !slices.Contains([]registry.Action{"", registry.Kill, registry.Pause, registry.PauseFiles}, c.OnTimeout):
		return invalid("on timeout", fmt.Sprintf("%q is not known", sandbox.Clip(string(c.OnTimeout), 32)), "use kill, pause or pause-files")
	case c.OnTimeout == registry.PauseFiles && c.AutoResume:
		return invalid("on timeout", "what was paused without its memory does not wake by itself: a caller would meet nothing that runs", "leave auto-resume out, or keep the memory")
	}
	return nil
}
