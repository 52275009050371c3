// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

var (
	_ sandbox.Snapshotter     = (*instance)(nil)
	_ sandbox.FileSnapshotter = (*instance)(nil)
	_ sandbox.Restorer        = (*Driver)(nil)
)

// agentStays is how long an agent inside waits for another stream when its own has
// ended, as it has when the kernel goes on from a snapshot.
const agentStays = time.Minute

// selfFile holds self in a snapshot.
const selfFile = "caisson.json"

// self is what a sandbox must be again when it goes on.
type self struct {
	// Mark begins sessions with its agent.
	Mark string `json:"mark"`
	// Base is the first of its private host ids; 0 when it has none.
	Base uint32 `json:"base,omitempty"`
	// Files says that there is no memory in the snapshot: nothing remembers Mark.
	Files bool `json:"files,omitempty"`
	// Image is the digest of the image that is its root; empty without one.
	Image string `json:"image,omitempty"`
	maker
}

// imageOf is the digest of the image that is a sandbox's root; empty without one.
func imageOf(spec *sandbox.Spec) string {
	if spec.Root.Image == nil {
		return ""
	}
	return spec.Root.Image.Digest
}

// readSelf reads what a sandbox was that goes on as spec. ErrMisfit where its memory cannot.
func readSelf(dir string, spec *sandbox.Spec) (s self, err error) {
	data, err := os.ReadFile(filepath.Join(dir, selfFile))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && (s.Base != 0) != (euid == 0) {
		err = errors.New("it was written by another user")
	}
	if err != nil {
		return s, &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrInvalid, Problem: "its snapshot cannot be read", Cause: err}
	}
	why := s.misfit(here())
	if s.Image != "" && s.Image != imageOf(spec) {
		why = "on another image (" + s.Image + ")"
	}
	if why != "" && !s.Files {
		return s, &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnsupported, Problem: "its memory was kept " + why,
			Hint: "go on where it was written down, or make a new sandbox", Cause: sandbox.ErrMisfit}
	}
	return s, nil
}

// Snapshot has gVisor's kernel write itself down.
func (i *instance) Snapshot(ctx context.Context, dir string, end bool) error {
	return i.save(ctx, protocol.Command{Kind: protocol.Save, Dir: dir, End: end})
}

// SnapshotFiles has it write down the file systems that are on the disk.
func (i *instance) SnapshotFiles(ctx context.Context, dir string, end bool) error {
	return i.save(ctx, protocol.Command{Kind: protocol.Save, Dir: dir, End: end, Files: true})
}

func (i *instance) save(ctx context.Context, c protocol.Command) error {
	if !i.box.spec.Snapshots {
		return sandbox.Errorf(sandbox.ErrUnsupported, "snapshot of "+i.box.spec.ID, "it was not made for it")
	}
	was := i.self
	was.Files, was.maker = c.Files, here()
	if image := imageOf(i.box.spec); image != "" { // one that was taken over knows what was written of it
		was.Image = image
	}
	data, err := json.Marshal(was)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Dir, selfFile), data, 0o600)
	}
	if err != nil {
		return stateError(err)
	}
	saved := make(chan error, 1)
	i.mu.Lock()
	if i.err != nil || i.saved != nil {
		defer i.mu.Unlock()
		if i.err != nil {
			return i.err
		}
		return sandbox.Errorf(sandbox.ErrConflict, "snapshot of "+i.box.spec.ID, "another one is being written")
	}
	i.saved = saved
	i.mu.Unlock()
	_ = i.box.shim.command(c)
	select {
	case err := <-saved:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// saveError is what came of a snapshot: the shim's answer, or the sandbox's end
// before it.
func saveError(ev *protocol.Event, end error) error {
	if end != nil {
		return end
	}
	if ev.Error == "" {
		return nil
	}
	e := &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "gVisor cannot write the sandbox down: " + sandbox.Clip(ev.Error, maxWords),
		Hint: "see whether the disk of the state directory is full"}
	ev.Advice.Over(e)
	return e
}

// Restore makes a sandbox that goes on from a snapshot.
func (d *Driver) Restore(ctx context.Context, spec *sandbox.Spec, dir string) (sandbox.Instance, error) {
	if !spec.Snapshots {
		return nil, sandbox.Errorf(sandbox.ErrInvalid, "resume sandbox", "its world is not one of a snapshot")
	}
	return d.startInstance(ctx, spec, dir)
}
