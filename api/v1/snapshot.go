// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
)

// Snapshot is a sandbox as it was at one moment.
type Snapshot struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Sandbox  string    `json:"sandbox" doc:"Whose it is"`
	Template string    `json:"template"`
	Created  time.Time `json:"created"`
}

func snapshotView(s *persistent.Snapshot) Snapshot {
	return Snapshot{ID: s.ID, Name: s.Name, Sandbox: s.Sandbox.ID, Template: s.Sandbox.Template, Created: s.Created.UTC()}
}

type snapshotAnswer struct{ Body Snapshot }

type snapshotsAnswer struct {
	Body struct {
		Snapshots []Snapshot `json:"snapshots"`
	}
}

// Fork is one copy of a sandbox, or why there is none.
type Fork struct {
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

type forkAnswer struct {
	Body struct {
		Forks []Fork `json:"forks"`
	}
}

type snapshotWish struct {
	SandboxID
	Body *SnapshotName
}

// SnapshotName is what a snapshot is to be called.
type SnapshotName struct {
	Name string `json:"name,omitempty" maxLength:"256" doc:"The caller's own"`
}

type forkWish struct {
	SandboxID
	Body *Forks
}

// Forks are the copies that are wanted.
type Forks struct {
	Count   int     `json:"count,omitempty" minimum:"1" maximum:"100" doc:"How many; 1 when it is left out"`
	Timeout float64 `json:"timeout,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds that each lives; 0 is the key's default"`
}

// snapshots registers what writes sandboxes down, and what copies them.
func (s *Server) snapshots() {
	op := operation("POST", "/sandboxes/{id}/snapshots", "snapshotSandbox", "Write a running sandbox down, which goes on meanwhile", http.StatusCreated)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *snapshotWish) (*snapshotAnswer, error) {
		name := ""
		if in.Body != nil {
			name = in.Body.Name
		}
		snap, err := s.o.Sandboxes.Handle(k, in.ID).Snapshot(ctx, name)
		if err != nil {
			return nil, err
		}
		return &snapshotAnswer{snapshotView(snap)}, nil
	})
	op = operation("GET", "/snapshots", "listSnapshots", "List snapshots, newest first", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		Sandbox string `query:"sandbox" maxLength:"64" doc:"Those of one sandbox alone"`
	}) (*snapshotsAnswer, error) {
		all, err := s.o.Sandboxes.Snapshots(ctx, k, in.Sandbox)
		a := &snapshotsAnswer{}
		a.Body.Snapshots = []Snapshot{}
		for _, snap := range all {
			a.Body.Snapshots = append(a.Body.Snapshots, snapshotView(snap))
		}
		return a, err
	})
	op = operation("DELETE", "/snapshots/{snapshot}", "deleteSnapshot", "Remove a snapshot; sandboxes that went on from it stay", http.StatusNoContent)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *struct {
		ID string `path:"snapshot" maxLength:"64"`
	}) (*struct{}, error) {
		return nil, s.o.Sandboxes.DeleteSnapshot(ctx, k, in.ID)
	})
	op = operation("POST", "/sandboxes/{id}/fork", "forkSandbox", "Make copies of a running sandbox, with its files, memory and processes", http.StatusCreated)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *forkWish) (*forkAnswer, error) {
		if in.Body == nil {
			in.Body = &Forks{}
		}
		all, err := s.o.Sandboxes.Handle(k, in.ID).Fork(ctx, max(in.Body.Count, 1), seconds(in.Body.Timeout))
		a := &forkAnswer{}
		a.Body.Forks = []Fork{}
		var copies []*persistent.Sandbox
		for _, f := range all {
			if f.Err != nil {
				a.Body.Forks = append(a.Body.Forks, Fork{Problem: asProblem(f.Err)})
				continue
			}
			v := view(f.Sandbox)
			a.Body.Forks = append(a.Body.Forks, Fork{Sandbox: &v})
			copies = append(copies, f.Sandbox)
		}
		if err == nil {
			err = made(ctx, copies...)
		}
		return a, err
	})
}
