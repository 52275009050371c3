// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

// Step is a step of a template's build: a program that changes the tree that the template
// becomes. Nothing of that is private to the sandbox, so there is no scratch over it.
type Step struct {
	// Tree is the root. What the step changes is read from the sandbox, and is not in it.
	Tree *image.Builder
	// Config has the variables and the directory that hold for it, User is who it runs as.
	Config image.Config
	User   sandbox.User
}

// openStep is findImage for a step. A level that has no root of its own is refused: what
// belongs to whom in the tree would be lost.
func (e *Environment) openStep(context.Context) error {
	s := e.o.Step
	if !e.o.Caps.Root || !e.o.Caps.EROFS || !e.o.Caps.Changes {
		return &sandbox.Error{Op: "build", Kind: sandbox.ErrUnsupported, Problem: e.o.Plan.Isolation + " cannot run the steps of a template", Hint: "build on gvisor, microvm or vm: their root is the sandbox's own"}
	}
	e.Image = &image.Stored{Config: s.Config, User: s.User, Root: s.User}
	e.Image.Config.Entrypoint, e.Image.Config.Cmd = nil, nil
	e.Spec.User, e.ImageEnv = s.User, s.Config.Env
	e.Spec.Sudo, e.Spec.RootChanges = true, true
	return nil
}
