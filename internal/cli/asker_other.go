// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package cli

import (
	"context"
	"syscall"

	"github.com/caisson-run/caisson/approval"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/question"
)

// terminalAsker is none here: no sandbox runs on this system.
func (a *app) terminalAsker(<-chan syscall.Signal) question.Asker { return nil }

func (a *app) confirm(_ context.Context, r *approval.Request) (bool, error) {
	return false, &sandbox.Error{Op: "approve " + r.ID, Kind: sandbox.ErrInvalid, Problem: "this system's terminal cannot be asked",
		Hint: "name the digest that caisson approvals show has: caisson approvals approve " + r.ID + " DIGEST"}
}
