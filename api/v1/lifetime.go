// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/session/persistent"
)

// Lifetime is how long something lives from now on.
type Lifetime struct {
	Timeout float64 `json:"timeout,omitempty" minimum:"0" maximum:"31536000" doc:"Seconds from now on; 0 is the default: the key's, or what it had before"`
}

type lifetimeWish struct {
	SandboxID
	Body *Lifetime
}

func (l *lifetimeWish) timeout() time.Duration {
	if l.Body == nil {
		return 0
	}
	return seconds(l.Body.Timeout)
}

// Pausing is what is kept of a sandbox.
type Pausing struct {
	Memory *bool `json:"memory,omitempty" doc:"Keep its memory and processes, too, which is the default; false keeps its files alone, with which it begins anew"`
}

type pauseWish struct {
	SandboxID
	Body *Pausing
}

// lifetimes registers what prolongs, pauses and resumes sandboxes.
func (s *Server) lifetimes() {
	type change = func(context.Context, *persistent.Key, *lifetimeWish) (*persistent.Sandbox, error)
	for _, c := range []struct {
		verb, id, summary string
		do                change
	}{
		{"extend", "extendSandbox", "Let a sandbox live for at least so long from now on; its time is never shortened", func(ctx context.Context, k *persistent.Key, in *lifetimeWish) (*persistent.Sandbox, error) {
			return s.o.Sandboxes.Handle(k, in.ID).Extend(ctx, in.timeout())
		}},
		{"resume", "resumeSandbox", "Let a paused sandbox go on, with its files, memory and processes as they were, or begin anew with its files where the rest was not kept", func(ctx context.Context, k *persistent.Key, in *lifetimeWish) (*persistent.Sandbox, error) {
			return s.o.Sandboxes.Handle(k, in.ID).Resume(ctx, in.timeout())
		}},
		{"connect", "connectSandbox", "Resume a sandbox if it is paused, and else extend it", func(ctx context.Context, k *persistent.Key, in *lifetimeWish) (*persistent.Sandbox, error) {
			b, _, err := s.o.Sandboxes.Handle(k, in.ID).Connect(ctx, in.timeout())
			return b, err
		}},
	} {
		op := operation("POST", "/sandboxes/{id}/"+c.verb, c.id, c.summary, http.StatusOK)
		register(s, op, func(ctx context.Context, k *persistent.Key, in *lifetimeWish) (*sandboxAnswer, error) {
			b, err := c.do(ctx, k, in)
			return answer(http.StatusOK, b, err)
		})
	}
	op := operation("POST", "/sandboxes/{id}/pause", "pauseSandbox", "Stop a sandbox until it is resumed or killed", http.StatusOK)
	register(s, op, func(ctx context.Context, k *persistent.Key, in *pauseWish) (*sandboxAnswer, error) {
		h := s.o.Sandboxes.Handle(k, in.ID)
		pause := h.Pause
		if in.Body != nil && in.Body.Memory != nil && !*in.Body.Memory {
			pause = h.PauseFiles
		}
		b, err := pause(ctx)
		return answer(http.StatusOK, b, err)
	})
}
