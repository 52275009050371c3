// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"context"
	"path"
	"strings"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Files are the files of a persistent sandbox for one request. Each method that moves or
// changes a file is a call: decided by the key's policy, path by path, recorded with what came
// of it, and carried out by the paths that were decided, never by how a client wrote them. What
// is refused is recorded, too, and an ErrDenied with the rule. What the policy asks about is
// refused: a transfer under way cannot wait for an answer. The tools read_file and write_file
// wait.
//
// Paths are the sandbox's: ~ and what is relative begin at the user's home; see [InHome]. What
// the agent inside answers is a [*sandbox.AgentError].
type Files struct {
	handle   *Handle
	frontend string
	user     string
}

// Files are the files of the sandbox. frontend is where the request came in, such as "e2b";
// user is whom it names, whose rights it has; see [Inside.Account]. Empty is the sandbox's own.
func (h *Handle) Files(frontend, user string) *Files {
	return &Files{handle: h, frontend: frontend, user: user}
}

// CheckPath says what is wrong with a path of a sandbox, as a request writes it.
func CheckPath(p string) error { return wire.CheckName(p) }

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

// look has do ask the agent about the file that p means, with the user's rights. It changes
// nothing, and is no call in the record.
func (f *Files) look(ctx context.Context, p string, do func(in *Inside, p string) error) error {
	l, _, shown, err := f.handle.enter(ctx)
	if err != nil {
		return err
	}
	defer l.unuse()
	in, err := shown.as(f.user)
	if err != nil {
		return err
	}
	return do(in, InHome(in.User.Home, p))
}

// Stat describes a file or directory.
func (f *Files) Stat(ctx context.Context, p string) (info sandbox.FileInfo, err error) {
	err = f.look(ctx, p, func(in *Inside, p string) (err error) {
		info, err = in.agent.Stat(ctx, p)
		return err
	})
	return info, err
}

// List lists a directory, and what is below it down to depth levels; 1 is the directory
// alone. A listing of more than some 20 000 files is an error.
func (f *Files) List(ctx context.Context, p string, depth int) (list []sandbox.FileInfo, err error) {
	err = f.look(ctx, p, func(in *Inside, p string) (err error) {
		list, err = in.agent.List(ctx, p, depth)
		return err
	})
	return list, err
}

// MakeDir makes a directory and those above it. One that exists is an ErrConflict.
func (f *Files) MakeDir(ctx context.Context, p string) (info sandbox.FileInfo, err error) {
	err = f.change(ctx, policy.MakeDirectory, func(a *fileCall) (_ []sandbox.File, err error) {
		info, err = a.agent.MakeDir(ctx, a.paths[0])
		return nil, err
	}, p)
	return info, err
}

// Move renames a file or directory, and makes the directories above its new place.
func (f *Files) Move(ctx context.Context, from, to string) (info sandbox.FileInfo, err error) {
	err = f.change(ctx, policy.MoveFile, func(a *fileCall) (_ []sandbox.File, err error) {
		info, err = a.agent.MoveTo(ctx, a.paths[0], a.paths[1])
		return nil, err
	}, from, to)
	return info, err
}

// Remove removes a file, or a directory with all that is in it. What does not exist is no
// error.
func (f *Files) Remove(ctx context.Context, p string) error {
	return f.change(ctx, policy.RemoveFile, func(a *fileCall) ([]sandbox.File, error) {
		return nil, a.agent.Remove(ctx, a.paths[0])
	}, p)
}

// Compose makes one file of several, in their order, and removes these. When it fails nothing
// has changed.
func (f *Files) Compose(ctx context.Context, from []string, to string) (w sandbox.WrittenFile, err error) {
	err = f.change(ctx, policy.WriteFile, func(a *fileCall) (_ []sandbox.File, err error) {
		w, err = a.agent.Compose(ctx, a.paths[1:], a.paths[0])
		return nil, err
	}, append([]string{to}, from...)...)
	return w, err
}
