// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/template"
)

// BuildState is how a build stands.
type BuildState string

// The states of a build.
const (
	BuildWaiting BuildState = "waiting" // for what it is to be made from
	BuildRunning BuildState = "building"
	BuildReady   BuildState = "ready"
	BuildFailed  BuildState = "error"
)

const (
	maxBuilds     = 100    // that are known of a key
	maxRunning    = 2      // of a key at once
	maxBuildLines = 10_000 // of the log that is kept of each
	maxBuildLine  = 4 << 10
	maxTags       = 32 // of one build
)

// BuildLine is a line of a build's log.
type BuildLine struct {
	At      time.Time
	Step    int // of the definition, from 1; 0 is none
	Message string
	Failed  bool
}

// BuildRecord is a build as its key sees it.
type BuildRecord struct {
	ID      string // a UUID
	Name    string // of the template
	Tags    []string
	State   BuildState
	Created time.Time
	Ended   time.Time
	Log     []BuildLine
	Err     error
	Step    int // that failed, from 1; 0 is the base
	Steps   []template.RawStep
}

// Templates are a key's: those that it has, and the builds that make them. Builds are in
// memory, and end with this process.
type Templates struct {
	boxes *Sandboxes
	key   *Key
}

// TemplatesOf returns those of a key.
func (b *Sandboxes) TemplatesOf(k *Key) *Templates { return &Templates{b, k} }

// builds are those of all keys, newest last.
type builds struct {
	mu      sync.Mutex
	all     []*ownedBuild
	uploads uploads

	naming sync.Mutex // held while templates of keys get their names
}

type ownedBuild struct {
	BuildRecord
	owner string

	// Of one that was started:
	stop  context.CancelCauseFunc
	ended chan struct{} // is closed
}

// supersedes says whether both are of a key's and would give the same name.
func (b *ownedBuild) supersedes(o *ownedBuild) bool {
	return b.owner == o.owner && b.Name == o.Name && slices.ContainsFunc(b.Tags, func(tag string) bool { return slices.Contains(o.Tags, tag) })
}

// Begin notes a build of a template, whose name may have a tag. It runs with Run.
func (t *Templates) Begin(name string, tags []string) (*BuildRecord, error) {
	r, err := templateRef(name)
	if err != nil {
		return nil, err
	}
	if t.boxes.isConfigured(r.Name) {
		return nil, &sandbox.Error{Op: "template " + r.Name, Kind: sandbox.ErrConflict, Problem: "the operator has one of this name", Hint: "take another name"}
	}
	all := []string{r.Tag}
	if len(tags) > 0 && !strings.Contains(name, ":") {
		all = nil
	}
	for _, tag := range tags {
		if _, err := templateRef(r.Name + ":" + tag); err != nil {
			return nil, err
		}
		if !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	if len(all) > maxTags {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "template "+r.Name, "it has more than %d tags", maxTags)
	}
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &ownedBuild{owner: t.key.ID, BuildRecord: BuildRecord{ID: newUUID(), Name: r.Name, Tags: all, State: BuildWaiting, Created: t.boxes.o.Clock.Now()}}
	known := 0
	for _, b := range s.all {
		if b.owner == t.key.ID {
			known++
		}
	}
	if known >= maxBuilds { // the oldest that does not run is forgotten
		i := slices.IndexFunc(s.all, func(b *ownedBuild) bool { return b.owner == t.key.ID && b.State != BuildRunning })
		s.all = slices.Delete(s.all, i, i+1)
	}
	s.all = append(s.all, one)
	return one.copy(), nil
}

// names are those that it gives what it builds.
func (b *ownedBuild) names() []reference.Ref {
	out := make([]reference.Ref, len(b.Tags))
	for i, tag := range b.Tags {
		out[i] = reference.Ref{Kind: reference.Template, Name: b.Name, Tag: tag}
	}
	return out
}

func (b *ownedBuild) copy() *BuildRecord {
	c := b.BuildRecord
	c.Tags, c.Log = slices.Clone(c.Tags), slices.Clip(c.Log)
	return &c
}

// find finds a build of the key. The caller holds mu.
func (t *Templates) find(name, id string) (*ownedBuild, error) {
	for _, b := range t.boxes.builds.all {
		if b.owner == t.key.ID && b.ID == id && b.Name == name {
			return b, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.ErrNotFound, "build", "there is none with this ID")
}

// Build is one build of a template.
func (t *Templates) Build(name, id string) (*BuildRecord, error) {
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := t.find(name, id)
	if err != nil {
		return nil, err
	}
	return b.copy(), nil
}

// Builds are those of a template that are known, newest first.
func (t *Templates) Builds(name string) []*BuildRecord {
	s := &t.boxes.builds
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*BuildRecord
	for _, b := range slices.Backward(s.all) {
		if b.owner == t.key.ID && b.Name == name {
			out = append(out, b.copy())
		}
	}
	return out
}

// newUUID makes a random one, as E2B's clients know builds by.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
