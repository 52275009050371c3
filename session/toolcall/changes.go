// SPDX-License-Identifier: Apache-2.0

package toolcall

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Applying is an apply of a change set that has been looked at, and not been carried out.
type Applying struct {
	// Ruled says that the policy's own rules let all of it through. Else a person is asked.
	Ruled bool
	// About is what people are shown: each path that is applied, and how it changes.
	About func() ([]string, error)
	// Do carries it out, and gives what the output schema says.
	Do func(ctx context.Context) (map[string]any, error)
}

// applyChanges carries out apply_changes. What it would do decides whether a person is
// asked, so it is decided once that is known.
func (t *run) applyChanges(ctx context.Context) (*Answer, error) {
	a, err := t.boxes.Applying(t.inside())
	if err != nil {
		return nil, t.refuse(ctx, err)
	}
	t.use.Ruled, t.about = a.Ruled, a.About
	if t.verdict = t.session.Policy().Decide(t.decided()); t.verdict.Decision == policy.Deny {
		return nil, t.refuse(ctx, t.verdict.Err())
	}
	return t.recorded(ctx, a.Do)
}

// KeptOutput is what was kept, in the words of the output schemas.
func KeptOutput(c *sandbox.Changes) map[string]any {
	out := map[string]any{"files": c.Files}
	for name, s := range map[string]string{"id": c.ID, "digest": c.Digest, "problem": c.Problem, "hint": c.Hint} {
		if s != "" {
			out[name] = s
		}
	}
	for name, n := range map[string]int{"held": c.Held, "ignored": c.Ignored, "applied": len(c.Applied)} {
		if n > 0 {
			out[name] = n
		}
	}
	return out
}

// shownKept is that in a few words.
func shownKept(out map[string]any) string {
	if problem, ok := out["problem"]; ok {
		return fmt.Sprintf("changes: %v", problem)
	}
	return fmt.Sprintf("files changed: %v; kept as change set %v", out["files"], out["id"])
}

// shownSet is an answer of show_changes.
func shownSet(out map[string]any) string {
	text := fmt.Sprintf("change set %v, digest %v: %v files changed, %v held back\n\n%v", out["id"], out["digest"], out["files"], out["held"], out["patch"])
	if out["truncated"] == true {
		text += "\n[the diff is longer: show one path]"
	}
	return text
}
