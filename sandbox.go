// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// Sandbox is a sandbox that goes on between calls: programs find the files, and the
// processes, that others have left. [Caisson.Create] makes it. It may be used from many
// goroutines. Once it has ended its methods give ErrNotFound, and say why it ended.
type Sandbox struct {
	ID     string // what records call it
	handle *persistent.Handle
}

// SandboxInfo is what is known of a Sandbox.
type SandboxInfo struct {
	State     string    // "running" or "paused"
	Created   time.Time // when it was made
	Ends      time.Time // when its time is over; zero is never
	Isolation string
	Limits    Limits
	Network   []string // what it may reach
	Posture   sandbox.Posture
}

// Get tells how the sandbox stands.
func (s *Sandbox) Get(ctx context.Context) (*SandboxInfo, error) {
	b, err := s.handle.Get(ctx)
	if err != nil {
		return nil, err
	}
	i := &SandboxInfo{State: string(b.State), Created: b.Created, Ends: b.Ends, Isolation: b.Isolation, Limits: b.Limits, Network: b.Network, Posture: b.Posture}
	if b.Lifetime == persistent.Longest {
		i.Ends = time.Time{}
	}
	return i, nil
}

// Extend lets the sandbox live for at least d from now on; 0 is until Kill.
func (s *Sandbox) Extend(ctx context.Context, d time.Duration) error {
	_, err := s.handle.Extend(ctx, d)
	return err
}

// Pause stops the sandbox with its memory, until Resume or Kill. A level that cannot is
// ErrUnsupported.
func (s *Sandbox) Pause(ctx context.Context) error {
	_, err := s.handle.Pause(ctx)
	return err
}

// Resume lets a paused sandbox go on, for d from now on; 0 is as long as it had.
func (s *Sandbox) Resume(ctx context.Context, d time.Duration) error {
	_, err := s.handle.Resume(ctx, d)
	return err
}

// Dial connects to a TCP port of a program inside. The connection ends with the sandbox.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	in, leave, err := s.handle.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return in.Dial(ctx, port)
}

// KeepChanges keeps what was changed so far in a copy-on-write workspace, and goes on;
// [Caisson.ChangeSets] shows and applies it. ignored keeps also what .gitignore files ignore.
// It is nil when nothing was changed that is kept.
func (s *Sandbox) KeepChanges(ctx context.Context, ignored bool) (*sandbox.Changes, error) {
	kept, err := s.handle.KeepChanges(ctx, ignored)
	return kept, forGo("Create", err)
}

// Kill ends the sandbox with all that is in it, and returns when nothing of it is left.
func (s *Sandbox) Kill(ctx context.Context) error { return s.handle.Kill(ctx) }

// Close is Kill for a defer: it has no context, and one that has ended already is no error.
func (s *Sandbox) Close() error {
	err := s.Kill(context.Background())
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil
	}
	return err
}
