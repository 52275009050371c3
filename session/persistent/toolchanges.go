// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/changes"
	"github.com/caisson-run/caisson/session/toolcall"
)

// Bounds of what goes to a model.
const (
	maxListedSets = 100
	maxShown      = 500      // entries or paths
	maxShownPatch = 64 << 10 // bytes
)

// keepChanges carries out keep_changes.
func (t toolbox) keepChanges(ctx context.Context, u *toolcall.Use) (map[string]any, error) {
	ignored, _ := u.Args["ignored"].(bool)
	kept, err := t.boxes.Handle(t.key, u.Sandbox).KeepChanges(ctx, ignored)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"sandbox_id": u.Sandbox}
	if kept != nil {
		out["changes"] = toolcall.KeptOutput(kept)
	}
	return out, nil
}

// listChanges carries out list_changes.
func (t toolbox) listChanges() (map[string]any, error) {
	list, err := t.boxes.ChangeSets(t.key).List()
	if err != nil {
		return nil, err
	}
	all := []any{}
	for i := range list[:min(len(list), maxListedSets)] {
		s := &list[i]
		one := map[string]any{
			"id": s.ID, "workspace": s.Target, "created_at": s.Created.UTC().Format(time.RFC3339), "expires_at": s.Expires.UTC().Format(time.RFC3339),
			"files": s.Files, "held": s.Held,
		}
		if s.Run != "" {
			one["run"] = s.Run
		}
		if s.State.Applied > 0 {
			one["applied"] = s.State.Applied
		}
		if s.State.Unfinished {
			one["unfinished"] = true
		}
		all = append(all, one)
	}
	out := map[string]any{"changes": all}
	if more := len(list) - maxListedSets; more > 0 {
		out["omitted"] = more
	}
	return out, nil
}

// showChanges carries out show_changes.
func (t toolbox) showChanges(u *toolcall.Use) (map[string]any, error) {
	sets := t.boxes.ChangeSets(t.key)
	set, err := sets.Get(u.Args.Text("id"))
	if err != nil {
		return nil, err
	}
	patch := &cutText{maximum: maxShownPatch}
	if err := sets.WritePatch(patch, set.ID, u.Args.Text("path")); err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	out := map[string]any{"id": set.ID, "digest": set.Digest, "files": set.Files, "held": set.Held, "patch": patch.text.String()}
	if patch.cut {
		out["truncated"] = true
	}
	entries, omitted := []any{}, 0
	for i := range set.Entries {
		switch e := &set.Entries[i]; {
		case !e.IsBelow(u.Args.Text("path")):
		case len(entries) == maxShown:
			omitted++
		default:
			entries = append(entries, entryOutput(e))
		}
	}
	if out["entries"] = entries; omitted > 0 {
		out["omitted"] = omitted
	}
	return out, nil
}

// entryOutput is an entry in the words of the output schema. A path that is no text cannot
// be named in a call, and is shown as it can be seen.
func entryOutput(e *changes.Entry) map[string]any {
	out := map[string]any{"path": textOf(e.Path), "op": string(e.Op), "type": string(e.Type)}
	if e.Op != changes.Remove {
		out["mode"] = strconv.FormatUint(uint64(e.Mode), 8)
	}
	if e.Size > 0 {
		out["size"] = e.Size
	}
	if e.Link != "" {
		out["link"] = textOf(e.Link)
	}
	if len(e.Held) > 0 {
		out["held"] = e.Held
	}
	if e.Base != nil && e.Base.Touched {
		out["conflict"] = true
	}
	return out
}

// appliedOutput is what an apply did.
func appliedOutput(a *changes.Applied) map[string]any {
	paths, left, omitted := []any{}, []any{}, 0
	for _, p := range a.Paths[:min(len(a.Paths), maxShown)] {
		paths = append(paths, textOf(p))
	}
	for _, l := range a.Left[:min(len(a.Left), maxShown)] {
		left = append(left, map[string]any{"path": textOf(l.Path), "why": l.Why})
	}
	out := map[string]any{"id": a.ID, "applied": paths}
	if omitted = len(a.Paths) - len(paths) + len(a.Left) - len(left); omitted > 0 {
		out["omitted"] = omitted
	}
	if len(left) > 0 {
		out["left"] = left
	}
	if len(a.Already) > 0 {
		out["already"] = len(a.Already)
	}
	return out
}

// errCut ends who writes more than is wanted.
var errCut = errors.New("it is cut here")

// cutText keeps the beginning of a text.
type cutText struct {
	maximum int
	text    bytes.Buffer
	cut     bool
}

func (c *cutText) Write(p []byte) (int, error) {
	room := c.maximum - c.text.Len()
	if len(p) <= room {
		return c.text.Write(p)
	}
	c.text.Write(p[:room])
	c.text.Truncate(len(session.WholeRunes(c.text.Bytes())))
	c.cut = true
	return room, errCut
}
