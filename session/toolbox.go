// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"path"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// createSandbox carries out create_sandbox.
func (t *toolRun) createSandbox(ctx context.Context) (*ToolAnswer, error) {
	return t.recorded(ctx, func(ctx context.Context) (map[string]any, error) {
		c := Create{
			Door: t.call.Door, Template: t.args.text("template"), Timeout: t.args.seconds("timeout"),
			Env: t.args.table("env"), Metadata: t.args.table("metadata"),
		}
		if t.args.given("network") {
			c.Network = &NetworkWish{Allow: t.args.texts("network")}
			c.Network.None = len(c.Network.Allow) == 0
		}
		s, err := t.boxes.Create(ctx, t.key, c)
		if err != nil {
			return nil, err
		}
		return sandboxOutput(s), nil
	})
}

// sandboxOutput is a sandbox in the words of the output schemas.
func sandboxOutput(s *Sandbox) map[string]any {
	out := map[string]any{
		"sandbox_id": s.ID, "state": string(s.State), "template": s.Template, "isolation": s.Isolation,
		"created_at": s.Created.UTC().Format(time.RFC3339), "network": append([]string{}, s.Network...),
	}
	if !s.Ends.IsZero() {
		out["ends_at"] = s.Ends.UTC().Format(time.RFC3339)
	}
	if len(s.Metadata) > 0 {
		out["metadata"] = s.Metadata
	}
	return out
}

// killSandbox carries out kill_sandbox.
func (t *toolRun) killSandbox(ctx context.Context) (*ToolAnswer, error) {
	return t.recorded(ctx, func(ctx context.Context) (map[string]any, error) {
		if err := t.boxes.Kill(ctx, t.key, t.use.Sandbox); err != nil {
			return nil, err
		}
		return map[string]any{"sandbox_id": t.use.Sandbox, "ended": true}, nil
	})
}

// listSandboxes carries out list_sandboxes.
func (t *toolRun) listSandboxes(ctx context.Context) (*ToolAnswer, error) {
	return t.recorded(ctx, func(ctx context.Context) (map[string]any, error) {
		p, err := t.boxes.List(ctx, t.key, Filter{Metadata: t.args.table("metadata"), Limit: int(t.args.whole("limit", 0)), Cursor: t.args.text("cursor")})
		if err != nil {
			return nil, err
		}
		all := []any{}
		for _, s := range p.Sandboxes {
			all = append(all, sandboxOutput(s))
		}
		out := map[string]any{"sandboxes": all}
		if p.Next != "" {
			out["next"] = p.Next
		}
		return out, nil
	})
}

// inside carries out what asks a sandbox's agent about files.
func (t *toolRun) inside(ctx context.Context, do func(ctx context.Context, in *Inside) (map[string]any, error)) (*ToolAnswer, error) {
	return t.recorded(ctx, func(ctx context.Context) (map[string]any, error) {
		in, leave, err := t.boxes.Enter(ctx, t.key, t.use.Sandbox)
		if err != nil {
			return nil, err
		}
		defer leave()
		kind := policy.ReadFile
		if t.use.Name == string(policy.WriteFile) {
			kind = policy.WriteFile
		}
		// The path is a decision of its own, since only the sandbox says what it means. What
		// else the policy says of the tool was decided.
		if v := t.session.o.Policy.DecideTool(&policy.Call{Kind: kind, Actor: t.actor, Path: t.pathIn(in), Cwd: in.Dir}); v.Decision == policy.Deny {
			return nil, v.Err()
		}
		return do(ctx, in)
	})
}

// pathIn is an argument's path, which may be relative to the user's home.
func (t *toolRun) pathIn(in *Inside) string {
	p := t.args.text("path")
	if !path.IsAbs(p) {
		p = path.Join(in.User.Home, p)
	}
	return path.Clean(p)
}

// defaultRead is how much read_file reads when nobody says.
const defaultRead = 1 << 20

// readFile carries out read_file.
func (t *toolRun) readFile(ctx context.Context) (*ToolAnswer, error) {
	return t.inside(ctx, func(ctx context.Context, in *Inside) (map[string]any, error) {
		name, limit := t.pathIn(in), t.args.whole("limit", defaultRead)
		var b bytes.Buffer
		_, err := in.agent.ReadFile(ctx, name, &b, limit)
		longer := int64(b.Len()) == limit && errors.Is(err, sandbox.ErrInvalid)
		if err != nil && !longer {
			return nil, err
		}
		content := b.Bytes()
		out := map[string]any{"path": name, "encoding": "text"}
		if longer {
			content, out["truncated"] = wholeRunes(content), true
		}
		out["size"], out["content"] = len(content), string(content)
		if t.args.text("encoding") == "base64" || !utf8.Valid(content) {
			out["encoding"], out["size"], out["content"] = "base64", b.Len(), base64.StdEncoding.EncodeToString(b.Bytes())
		}
		return out, nil
	})
}

// writeFile carries out write_file.
func (t *toolRun) writeFile(ctx context.Context) (*ToolAnswer, error) {
	content := []byte(t.args.text("content"))
	if t.args.text("encoding") == "base64" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(string(content)); err != nil {
			return nil, t.refuse(ctx, &sandbox.Error{Op: "argument /content", Kind: sandbox.ErrInvalid, Problem: "it is not base64", Cause: err})
		}
	}
	return t.inside(ctx, func(ctx context.Context, in *Inside) (map[string]any, error) {
		name := t.pathIn(in)
		if err := in.agent.WriteFile(ctx, name, bytes.NewReader(content), sandbox.WriteOptions{}); err != nil {
			return nil, err
		}
		return map[string]any{"path": name, "size": len(content)}, nil
	})
}

// mostEntries is how many entries list_files answers with.
const mostEntries = 2000

// listFiles carries out list_files.
func (t *toolRun) listFiles(ctx context.Context) (*ToolAnswer, error) {
	return t.inside(ctx, func(ctx context.Context, in *Inside) (map[string]any, error) {
		name := t.pathIn(in)
		found, err := in.agent.List(ctx, name, int(t.args.whole("depth", 1)))
		if err != nil {
			return nil, err
		}
		out := map[string]any{"path": name}
		if more := len(found) - mostEntries; more > 0 {
			out["omitted"], found = more, found[:mostEntries]
		}
		entries := []any{}
		for _, e := range found {
			one := map[string]any{
				"name": e.Name, "path": e.Path, "type": entryType(e.Kind), "size": e.Size,
				"permissions": e.Permissions, "modified": e.ModTime.UTC().Format(time.RFC3339),
			}
			if e.Target != "" {
				one["target"] = e.Target
			}
			entries = append(entries, one)
		}
		out["entries"] = entries
		return out, nil
	})
}

func entryType(k sandbox.FileKind) string {
	switch k {
	case sandbox.RegularFile:
		return "file"
	case sandbox.Directory:
		return "directory"
	}
	return "other"
}
