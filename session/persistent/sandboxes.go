// SPDX-License-Identifier: Apache-2.0

// Package persistent has the sandboxes that go on between calls. [Sandboxes] makes and lists
// them for keys. A [Handle] is one of them for its key, which pauses, extends, snapshots and
// ends it, and runs programs in it. What runs goes through package session like everything
// else.
//
// Inside, managed is one sandbox, and locked the same for the one call that may change it.
// running is what there is of it while it runs. A change of several steps has a type of its
// own: creation, pausing, networkChange, adoption, departure.
//
// Lock order: the change of a sandbox, the mu of the inventory, that sandbox's mu, and last the
// mu of the background.
package persistent

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/question"
	"github.com/caisson-run/caisson/session/registry"
)

// Sandbox is one persistent sandbox, as its owner sees it.
type Sandbox = registry.Sandbox

// Key is who asks for sandboxes.
type Key = registry.Key

// SandboxesOptions are the parts of Sandboxes.
type SandboxesOptions struct {
	// Drivers, Journal and State are those of [Options]. Required.
	Drivers map[string]sandbox.Driver
	Journal audit.Journal
	State   session.State
	// Registry keeps sandboxes and keys. Required; the caller closes it after
	// Sandboxes.
	Registry *registry.DB

	// System bounds every policy. Policies are the operator's files by the names
	// that keys are bound to; the name "" may be missing, and then grants the
	// defaults: no network, no host files.
	System   *policy.File
	Policies map[string]*policy.File
	// Read are other files that were read, and that no code may change.
	Read []sandbox.HostFile
	// Profiles are the limits by the names that keys are bound to; the name ""
	// may be missing, and is DefaultProfile then.
	Profiles map[string]Profile
	// Templates are what sandboxes are made of, by name; "base" may be missing,
	// and is the host's toolchain then.
	Templates map[string]Template

	// Approvals is where people are asked; nil refuses what a policy asks about.
	Approvals *question.Approvals

	// Ready is how many sandboxes of a kind are kept ready, made before they are
	// asked for; 0 is none. See [Sandboxes.WarmPool]. Warm says it for a template, also one
	// that the operator has built, by its name. WarmMemory is how many bytes all of them may
	// hold together; 0 is no bound.
	Ready      int
	Warm       map[string]WarmRange
	WarmMemory int64

	// Left, when set, is what is left of memory and tasks to this process and its sandboxes
	// together: one that would not fit is ErrUnavailable.
	Left func() cgroup.Left

	Shutdown

	// Clock is the time of expiry; the host's when nil.
	Clock Clock
	// Boot is the time that rates go by, the host's since its boot when nil.
	Boot func() registry.Instant
	// Private sandboxes are this process's alone: it takes no other's over, another
	// process may have its own in the same state directory, and all end with Close.
	// The registry is this process's alone, too.
	Private bool
	// Notice, when set, is told what no caller waits for: a sandbox that could
	// not be paused, say. It must not block.
	Notice func(string)

	removeAll func(path string) error // os.RemoveAll but in tests
}

// WarmRange is how many sandboxes wait: Min always, and up to Max, where that is more, after
// callers have found none.
type WarmRange struct{ Min, Max int }

// Shutdown says what becomes of sandboxes when this process ends.
type Shutdown struct {
	// Grace is how long sandboxes stay at most when this process is killed, on levels
	// that can, until the next one takes them over. At 0 they end with it.
	Grace time.Duration
	// Leave has Close let go of such sandboxes instead of writing them down: they run
	// on meanwhile, and end when no other process comes within Grace.
	Leave bool

	// EndLimit is that of [Options]. Close waits for at most a quarter of it once its
	// context has ended.
	EndLimit time.Duration
	// EndOnClose has Close end the sandboxes that it could write down.
	EndOnClose bool
}

// Sandboxes are the persistent sandboxes of a state directory. Each key sees its own
// alone: another key's sandbox answers as one that does not exist.
//
// One process has the sandboxes of a state directory. When it is stopped, those
// that run are written down, where the level can, and go on with the next one;
// others end. When it is killed, those that may (see SandboxesOptions.Grace) run on
// until the next one takes them over, and the level ends the others. The next Open
// says so of each. Paused ones stay.
//
// It may be used from many goroutines.
type Sandboxes struct {
	o      SandboxesOptions
	secret []byte
	claim  session.RunDir

	background *background
	grants     *grants
	inventory  *inventory
	kept       *keptDirs
	events     events
	writes     *records // what keys add to the record
	warmPool   *warmPool
	ready      readiness
	memories   *memories
	fit        fit
	queue      *queue
	builds     builds
	// writers and wakers bound how many go cold, and wake, at once.
	writers, wakers chan struct{}
}

// OpenSandboxes takes over the sandboxes of a state directory. ErrConflict means
// that another process has them. Sandboxes that ran when their last owner was
// killed are gone, and are said to be.
func OpenSandboxes(ctx context.Context, o SandboxesOptions) (*Sandboxes, error) {
	if len(o.Drivers) == 0 || o.Journal == nil || o.State == nil || o.Registry == nil {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "sandboxes", "they need levels, a journal, a state directory and a registry")
	}
	if o.Clock == nil {
		o.Clock = hostClock{}
	}
	o.EndLimit = cmp.Or(o.EndLimit, session.DefaultEndLimit)
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.removeAll == nil {
		o.removeAll = os.RemoveAll
	}
	writes, err := newRecords(ctx, &o)
	if err != nil {
		return nil, err
	}
	o.Journal = writes
	claim := claimName
	if o.Private {
		claim, o.EndOnClose, o.Grace = registry.NewID(claimName+"_", 20), true, 0
	}
	b := newSandboxes(o, writes)
	if b.claim, err = claimAll(ctx, &b.o, claim); err != nil {
		b.background.stop()
		return nil, err
	}
	if b.secret, err = o.Registry.Secret(ctx, "sandbox tokens"); err == nil {
		err = (&recovery{b: b}).run(ctx)
	}
	if err != nil {
		b.background.stop()
		return nil, errors.Join(err, b.claim.Remove())
	}
	keepHouse(b)
	b.warmPool.begin()
	return b, nil
}

// newSandboxes are none yet.
func newSandboxes(o SandboxesOptions, writes *records) *Sandboxes {
	b := &Sandboxes{o: o, writes: writes, background: newBackground(), events: events{clock: o.Clock}, fit: fit{left: o.Left}}
	b.grants = &grants{o: &b.o, writes: writes, known: map[grantName]*grant{}}
	b.inventory = newInventory(b.background)
	b.kept = &keptDirs{dir: filepath.Join(o.State.Path(), keptDir), removeAll: o.removeAll}
	b.writers, b.wakers = make(chan struct{}, writersAtOnce), make(chan struct{}, wakersAtOnce)
	b.queue = newQueue(&b.fit)
	b.warmPool, b.memories = newWarmPool(b), newMemories(b)
	return b
}

// Token is a secret of one sandbox for one purpose, 40 hex digits. It is the
// same for as long as the sandbox lives, and is kept nowhere.
func (b *Sandboxes) Token(s *Sandbox, purpose string) string {
	m := hmac.New(sha256.New, b.secret)
	m.Write([]byte(purpose + "\x00" + s.ID))
	return hex.EncodeToString(m.Sum(nil)[:20])
}
