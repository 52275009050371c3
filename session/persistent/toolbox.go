// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"path"
	"time"
	"unicode/utf8"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
	"github.com/caisson-run/caisson/session/toolcall"
	"github.com/caisson-run/caisson/tool"
)

// toolbox is the persistent sandboxes of one key, for tools.
type toolbox struct {
	boxes *Sandboxes
	key   *Key
}

// Tools are the tools that a key may call here.
func (b *Sandboxes) Tools(k *Key) ([]*tool.Tool, error) {
	g, err := b.grants.of(k)
	if err != nil {
		return nil, err
	}
	return toolcall.Of(g.session).ToolsIn(), nil
}

// CallTool carries a tool out for a key: in the sandbox that its argument
// sandbox_id names, or in one of its own. See [toolcall.Tools.CallTool].
func (b *Sandboxes) CallTool(ctx context.Context, k *Key, c *toolcall.Call) (*toolcall.Answer, error) {
	g, err := b.grants.of(k)
	if err != nil {
		return nil, err
	}
	return toolcall.Of(g.session).CallToolIn(ctx, toolbox{b, k}, k.ID, k.Actor(), c)
}

// RefuseTool records a key's call of a tool that its frontend does not offer. See
// [toolcall.Tools.RefuseTool].
func (b *Sandboxes) RefuseTool(ctx context.Context, k *Key, c *toolcall.Call) error {
	g, err := b.grants.of(k)
	if err != nil {
		return err
	}
	return toolcall.Of(g.session).RefuseToolFor(ctx, k.ID, k.Actor(), c)
}

// Run implements [Boxes]: with the limits of a run, and in the key's quota.
func (t toolbox) Run(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error) {
	return t.boxes.Run(ctx, t.key, "", call, io)
}

// Exec implements [Boxes].
func (t toolbox) Exec(ctx context.Context, id string, call *session.Call, io session.IO) (*sandbox.Result, error) {
	return t.boxes.Handle(t.key, id).Exec(ctx, call, io)
}

// RunCell implements [Boxes].
func (t toolbox) RunCell(ctx context.Context, id string, call *session.Call, in string, on func(interpreter.Event) error) (*sandbox.Result, error) {
	return t.boxes.Handle(t.key, id).RunCell(ctx, call, in, on)
}

// Tool implements [Boxes].
func (t toolbox) Tool(ctx context.Context, u *toolcall.Use) (map[string]any, error) {
	switch u.Name {
	case "create_sandbox":
		return t.create(ctx, u)
	case "kill_sandbox":
		if err := t.boxes.Handle(t.key, u.Sandbox).Kill(ctx); err != nil {
			return nil, err
		}
		return map[string]any{"sandbox_id": u.Sandbox, "ended": true}, nil
	case "list_sandboxes":
		return t.list(ctx, u)
	case "keep_changes":
		return t.keepChanges(ctx, u)
	case "list_changes":
		return t.listChanges()
	case "show_changes":
		return t.showChanges(u)
	}
	in, leave, err := t.boxes.Handle(t.key, u.Sandbox).Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	name := u.Args.Text("path") // relative to the user's home
	if !path.IsAbs(name) {
		name = path.Join(in.User.Home, name)
	}
	name = path.Clean(name)
	kind, do := policy.ReadFile, readTool
	switch u.Name {
	case "write_file":
		kind, do = policy.WriteFile, writeTool
	case "list_files":
		do = listTool
	}
	if err := u.Judge(kind, name, in.Dir); err != nil {
		return nil, err
	}
	return do(ctx, in, name, u.Args)
}

// create carries out create_sandbox.
func (t toolbox) create(ctx context.Context, u *toolcall.Use) (map[string]any, error) {
	c := Create{
		Frontend: u.Frontend, Template: u.Args.Text("template"), Lifetime: Lifetime{Timeout: u.Args.Seconds("timeout")},
		Env: u.Args.Table("env"), Metadata: u.Args.Table("metadata"),
	}
	if u.Args.Given("network") {
		c.Network = &NetworkWish{Allow: u.Args.Texts("network")}
		c.Network.None = len(c.Network.Allow) == 0
	}
	s, err := t.boxes.Create(ctx, t.key, c)
	if err != nil {
		return nil, err
	}
	return sandboxOutput(s), nil
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

// list carries out list_sandboxes.
func (t toolbox) list(ctx context.Context, u *toolcall.Use) (map[string]any, error) {
	p, err := t.boxes.List(ctx, t.key, Filter{Metadata: u.Args.Table("metadata"), Limit: int(u.Args.Whole("limit", 0)), Cursor: u.Args.Text("cursor")})
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
}

// defaultRead is how much read_file reads by default, in bytes.
const defaultRead = 1 << 20

// readTool carries out read_file.
func readTool(ctx context.Context, in *Inside, name string, args toolcall.Args) (map[string]any, error) {
	limit := args.Whole("limit", defaultRead)
	var b bytes.Buffer
	_, err := in.agent.ReadFile(ctx, name, &b, limit)
	longer := int64(b.Len()) == limit && errors.Is(err, sandbox.ErrInvalid)
	if err != nil && !longer {
		return nil, err
	}
	content := b.Bytes()
	out := map[string]any{"path": name, "encoding": "text"}
	if longer {
		content, out["truncated"] = session.WholeRunes(content), true
	}
	out["size"], out["content"] = len(content), string(content)
	if args.Text("encoding") == "base64" || !utf8.Valid(content) {
		out["encoding"], out["size"], out["content"] = "base64", b.Len(), base64.StdEncoding.EncodeToString(b.Bytes())
	}
	return out, nil
}

// writeTool carries out write_file.
func writeTool(ctx context.Context, in *Inside, name string, args toolcall.Args) (map[string]any, error) {
	content := []byte(args.Text("content"))
	if args.Text("encoding") == "base64" {
		var err error
		if content, err = base64.StdEncoding.DecodeString(string(content)); err != nil {
			return nil, err
		}
	}
	if err := in.agent.WriteFile(ctx, name, bytes.NewReader(content), sandbox.WriteOptions{}); err != nil {
		return nil, err
	}
	return map[string]any{"path": name, "size": len(content)}, nil
}

// maxEntries is how many entries list_files answers with.
const maxEntries = 2000

// listTool carries out list_files.
func listTool(ctx context.Context, in *Inside, name string, args toolcall.Args) (map[string]any, error) {
	found, err := in.agent.List(ctx, name, int(args.Whole("depth", 1)))
	if err != nil {
		return nil, err
	}
	out := map[string]any{"path": name}
	if more := len(found) - maxEntries; more > 0 {
		out["omitted"], found = more, found[:maxEntries]
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
