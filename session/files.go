// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"path"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// FileCall is what somebody wants of files in a sandbox that lives on.
type FileCall struct {
	// Door is where the request came in: "e2b".
	Door string
	// Kind is policy.ReadFile, or another of its kind.
	Kind policy.Kind
	// Paths are those that it is about, as they were asked for: see [InHome]. A form
	// of files has none at its beginning; see [FileAction.Allow]. The first of a
	// MoveFile is what is moved; those of a WriteFile behind the first are what it is
	// made of. Both are read by it.
	Paths []string
	// User is whom the request names, whose rights the call has and at whose home ~ and
	// what is relative begin; see [Inside.Account]. Empty is the sandbox's own.
	User string
}

// InHome is the absolute path that a request means: ~ and what is relative begin
// at the home of the user whom it names. Empty stays empty, and another's ~ stays as
// it is, which no agent takes.
func InHome(home, p string) string {
	switch {
	case p == "" || len(p) > 1 && p[0] == '~' && p[1] != '/':
		return p
	case path.IsAbs(p):
		return path.Clean(p)
	case p == "~":
		p = ""
	}
	return path.Join("/", home, strings.TrimPrefix(p, "~/"))
}

// FileAction is a FileCall that was allowed and whose intent is recorded. Who has
// one carries it out with Agent, and ends it.
type FileAction struct {
	Inside
	// Paths are the call's as they were decided, and by which the agent is to be
	// asked. What is empty or another's ~ is as it was; no agent takes it.
	Paths []string

	run   *run
	boxes *Sandboxes
	key   *Key
	call  FileCall
	op    *operation
	once  sync.Once
	leave func()
	err   error
}

// BeginFiles decides what is to be done with files of a key's sandbox, path by
// path, by the key's policy, and records the intent. What is refused is recorded,
// too, and an ErrDenied with the rule. What the policy asks about is refused: nobody
// can be asked while a file is on its way; the tools read_file and write_file wait.
func (b *Sandboxes) BeginFiles(ctx context.Context, k *Key, id string, c FileCall) (*FileAction, error) {
	for _, p := range c.Paths {
		if err := wire.CheckName(p); err != nil {
			return nil, &sandbox.Error{Op: "file", Kind: sandbox.ErrInvalid, Problem: err.Error()}
		}
	}
	g, err := b.grant(k)
	if err != nil {
		return nil, err
	}
	l, in, shown, err := b.enterBox(ctx, k, id)
	if err != nil {
		return nil, err
	}
	as, err := shown.As(c.User)
	a := &FileAction{boxes: b, key: k, call: c, leave: sync.OnceFunc(l.unuse)}
	a.run = &run{s: g.session, call: &Call{Door: c.Door}, id: in.run.id, name: id, caps: in.caps}
	a.run.intent = audit.Intent{
		Actor: k.Actor(), Account: k.ID, Kind: string(c.Kind), Sandbox: id, Isolation: in.run.plan.Isolation,
		Policy: g.session.o.PolicyName, PolicySHA: g.session.o.Policy.Digest(),
	}
	if err != nil { // what a path would mean is not known
		a.run.intent.User, a.run.intent.Params = c.User, fileParams(c.Paths)
		err = a.run.failed(ctx, err)
		a.leave()
		return nil, err
	}
	if a.Inside = *as; a.User != shown.User {
		a.run.intent.User = a.User.Name
	}
	for _, p := range c.Paths {
		a.Paths = append(a.Paths, InHome(a.User.Home, p))
	}
	a.run.intent.Params = fileParams(a.Paths)
	for _, p := range a.Paths {
		if err := a.allow(ctx, c.Kind, p); err != nil {
			a.leave()
			return nil, err
		}
	}
	for _, p := range c.read(a.Paths) {
		if err := a.allow(ctx, policy.ReadFile, p); err != nil {
			a.leave()
			return nil, err
		}
	}
	if a.op, err = beginOperation(ctx, b.o.Journal, a.run.intent); err != nil {
		a.leave()
		return nil, err
	}
	return a, nil
}

// read are those of paths whose contents can be had elsewhere afterwards: who may not
// read them there may not have them moved to where they may.
func (c *FileCall) read(paths []string) []string {
	first := min(1, len(paths))
	switch c.Kind {
	case policy.MoveFile:
		return paths[:first]
	case policy.WriteFile:
		return paths[first:]
	}
	return nil
}

// fileParams are paths as records have them.
func fileParams(paths []string) []byte {
	var b []byte
	switch len(paths) {
	case 0:
	case 1:
		b, _ = json.Marshal(map[string]string{"path": paths[0]}) // text always is JSON
	default:
		b, _ = json.Marshal(map[string][]string{"paths": paths})
	}
	return b
}

// Allow decides one more path of the call, which was not known when it began, and
// gives it as it was decided. What is refused is recorded by itself.
func (a *FileAction) Allow(ctx context.Context, p string) (string, error) {
	p = InHome(a.User.Home, p)
	return p, a.allow(ctx, a.call.Kind, p)
}

func (a *FileAction) allow(ctx context.Context, kind policy.Kind, p string) error {
	if !path.IsAbs(p) {
		return nil // the agent refuses it
	}
	r := a.run
	call := &policy.Call{Kind: kind, Actor: a.key.Actor(), Path: p, Cwd: a.Dir, Tool: &policy.ToolCall{
		Name: fileTool(kind), Args: map[string]any{"path": p, "sandbox_id": r.name}, Sandbox: r.name,
	}}
	v := r.s.o.Policy.Decide(call)
	err := r.s.takeRates(ctx, a.key.ID, &v, a.key.Actor(), "")
	switch {
	case v.Decision == policy.Allow && err == nil:
		return nil
	case v.Decision == policy.Ask:
		q := v.Question.Askings[0]
		err = &sandbox.Error{Op: "policy", Kind: sandbox.ErrDenied, Problem: q.What + ", and nobody can be asked while a file is on its way", Rule: q.Rule,
			Hint: "call the tool " + fileTool(kind) + ", which waits for an answer"}
	case v.Decision != policy.Allow:
		err = v.Err()
	}
	refused := &run{s: r.s, call: r.call, intent: r.intent}
	refused.intent.Params = fileParams([]string{p})
	return refused.failed(ctx, err)
}

// fileTool is the built-in tool whose entry in a policy holds for such calls, too:
// whoever may not write a file neither removes nor moves it.
func fileTool(k policy.Kind) string {
	if k == policy.ReadFile {
		return string(policy.ReadFile)
	}
	return string(policy.WriteFile)
}

// End records what came of it: which files went where, and how many bytes they
// had; err is why it was not carried out. Only the first End counts.
func (a *FileAction) End(ctx context.Context, files []sandbox.File, err error) error {
	a.once.Do(func() {
		defer a.leave()
		a.err = a.op.end(ctx, outcomeOf(&sandbox.Result{Status: sandbox.StatusSuccess, Files: files}, err))
	})
	return a.err
}

// Tally counts the bytes of a file that go by, and makes their digest.
type Tally struct {
	size int64
	sum  hash.Hash
}

// NewTally begins to count.
func NewTally() *Tally { return &Tally{sum: sha256.New()} }

// Write counts p. It never fails.
func (t *Tally) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	return t.sum.Write(p)
}

// File is what went by, as a record has it. What was only a part of the file, or
// packed, has no digest.
func (t *Tally) File(path string, part bool) sandbox.File {
	f := sandbox.File{Path: path, Size: t.size}
	if !part {
		f.SHA256 = hex.EncodeToString(t.sum.Sum(nil))
	}
	return f
}
