// SPDX-License-Identifier: Apache-2.0

//go:build lean

package cli

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/sandbox"
)

// openRecord opens the record of a state directory for a journal, to append to it:
// elsewhere has seen that this can be done.
func openRecord(_ context.Context, dir string) (*audit.Log, error) {
	return audit.OpenTail(audit.Options{Dir: dir}, func(ctx context.Context) error { return settle(ctx, dir) })
}

// settle has the whole program look at the record, where that has changed since. What
// ends a run by the terminal does not end that, too: it may be for the record of that end.
func settle(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "audit", settleCommand)
	cmd.Env = append(os.Environ(), "CAISSON_STATE="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.Output()
	var said struct{ Op, Problem, Hint string }
	if err == nil {
		return nil
	}
	if json.Unmarshal(out, &said) == nil && said.Problem != "" {
		return &sandbox.Error{Op: said.Op, Kind: sandbox.ErrUnavailable, Problem: said.Problem, Hint: said.Hint}
	}
	return &sandbox.Error{Op: "audit", Kind: sandbox.ErrUnavailable, Problem: "the record could not be looked at", Cause: err,
		Hint: "nothing runs unrecorded: run caisson audit verify"}
}
