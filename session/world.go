// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// world is what a driver is handed.
type world struct {
	spec *sandbox.Spec
	exec *sandbox.Exec
	cwd  string
	// named are the mounts that the plan names, without those of the root, of the
	// program, and over parts of them.
	named []namedMount
	// search is PATH.
	search []string
}

// namedMount is a mount that the plan names.
type namedMount struct {
	sandbox.Mount
	gitWrite bool
}

const (
	// workspaceTarget is where the workspace shows, and then the working
	// directory: below /home/user it would hide what programs keep at home.
	workspaceTarget = "/workspace"
	// shmMost bounds /dev/shm; it is charged to memory.
	shmMost = 64 << 20
)

// prepare opens everything the plan names and builds the Spec.
func (r *run) prepare(ctx context.Context) (*world, error) {
	dir, err := r.s.o.State.Run(r.id)
	if err != nil {
		return nil, err
	}
	r.dir = dir
	r.undo.add(func(context.Context) error { return dir.Remove() })

	w := &world{spec: &sandbox.Spec{ID: r.id, User: sandbox.DefaultUser(), Limits: r.plan.Limits, StateDir: dir.Path()}, exec: &sandbox.Exec{}}
	if r.plan.BestEffort {
		w.spec.Limits.Explicit = nil // the caller has seen what is off or emulated; nobody insists
	}
	if r.plan.Root {
		w.spec.User = sandbox.RootUser()
	}
	w.spec.Sudo = r.call.Sudo && r.caps.Root
	w.spec.Snapshots = r.kind == policy.StartSandbox && r.caps.Snapshot
	r.s.soon()
	r.s.sweep(ctx)
	if err := r.findImage(ctx, w); err != nil {
		return nil, err
	}
	if err := r.connect(w); err != nil {
		return nil, err
	}
	w.cwd = r.workingDir()
	if err := r.addMounts(ctx, w); err != nil {
		return nil, err
	}
	r.mayOutlive(w)
	if err := r.nameServer(w); err != nil {
		return nil, err
	}
	if err := r.showTrust(w); err != nil {
		return nil, err
	}
	if err := r.addProgram(w); err != nil {
		return nil, err
	}
	if r.plan.Image != nil && r.prog == nil && r.kind == "" {
		if err := r.readCode(ctx, w.exec.Argv, r); err != nil {
			return nil, err
		}
	}
	if err := r.addScratch(w); err != nil {
		return nil, err
	}
	search, err := r.addRoot(ctx, w)
	if err != nil {
		return nil, err
	}
	if r.kind == policy.StartSandbox {
		search = append([]string{sandbox.ProgramDir}, search...)
	}
	w.exec.Dir, w.search = w.cwd, search
	if err := r.enforceCommands(w); err != nil {
		return nil, err
	}
	w.exec.Env = r.environment(w.spec.User, search)
	return w, nil
}

// workingDir is what the call says, else the workspace, else the image's, else
// the private home.
func (r *run) workingDir() string {
	switch {
	case r.call.Cwd != "":
		return r.call.Cwd
	case r.plan.Workspace != nil:
		return workspaceTargetOf(r.plan.Workspace)
	case r.imageDir() != "":
		return r.imageDir()
	}
	return sandbox.DefaultUser().Home
}

func workspaceTargetOf(m *policy.PlanMount) string {
	if m.Target != "" {
		return m.Target
	}
	return workspaceTarget
}

// addMounts opens the workspace and the mounts.
func (r *run) addMounts(ctx context.Context, w *world) error {
	if ws := r.plan.Workspace; ws != nil {
		m := *ws
		m.Target = workspaceTargetOf(ws)
		if err := r.mount(ctx, w, m, true); err != nil {
			return err
		}
	}
	for _, m := range r.plan.Mounts {
		if m.Target == "" {
			m.Target = path.Join(w.cwd, filepath.Base(m.Source))
		}
		if err := r.mount(ctx, w, m, false); err != nil {
			return err
		}
	}
	return nil
}

// mount opens one source, scans it for what must be hidden or kept, and adds
// it to the Spec.
func (r *run) mount(ctx context.Context, w *world, m policy.PlanMount, workspace bool) error {
	purpose := "mount"
	if workspace {
		purpose = "workspace"
	}
	src, err := r.open(m.PlanPath, purpose, m.Access)
	if err != nil {
		return err
	}
	if workspace && !src.Dir {
		return &sandbox.Error{Op: "workspace " + quoted(m.Source), Kind: sandbox.ErrInvalid, Problem: "it is a file", Hint: "name a directory, or use --mount"}
	}
	for _, have := range w.spec.Mounts {
		if have.Target == m.Target {
			return &sandbox.Error{Op: "mount " + quoted(m.Source), Kind: sandbox.ErrInvalid,
				Problem: fmt.Sprintf("%s is already at %s", quoted(have.Name), m.Target), Hint: "give it another target: " + m.Source + ":/data"}
		}
	}
	w.spec.Mounts = append(w.spec.Mounts, sandbox.Mount{Source: src.File, Name: src.Name, Target: m.Target, Access: m.Access, Dir: src.Dir})
	w.named = append(w.named, namedMount{w.spec.Mounts[len(w.spec.Mounts)-1], m.GitWrite})
	return r.guardMount(ctx, w, src, m)
}

// addScratch gives every writable path its private directory.
func (r *run) addScratch(w *world) error {
	l := r.plan.Limits
	paths := slices.Clone(r.plan.Writable)
	if home := w.spec.User.Home; r.plan.Root && !slices.Contains(paths, home) {
		paths = append(paths, home)
	}
	for _, p := range paths {
		for _, m := range w.spec.Mounts {
			if m.Dir && sandbox.Within(p, m.Target) {
				return &sandbox.Error{Op: "writable " + quoted(p), Kind: sandbox.ErrInvalid, Problem: "it lies in the mount at " + m.Target,
					Hint: "mount it :cow to keep writes in the sandbox, or :rw to change the host's files"}
			}
		}
		s := sandbox.Scratch{Target: p}
		switch {
		case p == "/tmp":
			s.Size, s.Sticky = l.Tmp, true
		case p == "/dev/shm":
			s.Size, s.Sticky, s.Memory = shmMost, true, true
			if l.Memory > 0 {
				s.Size = min(s.Size, l.Memory)
			}
		}
		w.spec.Scratch = append(w.spec.Scratch, s)
	}
	share(w.spec)
	return nil
}

// share divides the disk limits among the directories they are for, evenly, so
// that all of them together hold them. Most runs have one such directory, and
// /tmp, which has a size of its own but takes part in the number of files.
func share(s *sandbox.Spec) {
	disk := s.Limits.Disk
	if s.Sudo { // what root changes of the root file system takes a quarter
		s.RootSize = disk / 4
		disk -= s.RootSize
	}
	var sizes, files int64
	for _, d := range s.Scratch {
		if !d.Memory {
			files++
			if d.Size == 0 {
				sizes++
			}
		}
	}
	for i := range s.Scratch {
		d := &s.Scratch[i]
		if d.Memory {
			continue
		}
		if d.Size == 0 && disk > 0 {
			d.Size = max(disk/sizes, 1)
		}
		if s.Limits.Inodes > 0 {
			d.Inodes = max(s.Limits.Inodes/files, 1)
		}
	}
}

// characters is the locale of programs that are told of none. What sets it apart from C,
// which needs no files, is the characters: the order of words, dates and messages are
// the same (glibc 2.35, NEWS). Named for all of the locale it would have each program
// look for a file per category, 24 of them, a sixth of the time that a shell takes to
// start inside gVisor. CPython sets the same one (PEP 538).
const characters = "C.UTF-8"

// environment is small and known: the image's, and nothing of the caller's but
// what the plan passes on.
func (r *run) environment(u sandbox.User, search []string) []string {
	env := map[string]string{}
	for _, e := range r.imageEnv() {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	maps.Copy(env, map[string]string{"PATH": strings.Join(search, ":"), "HOME": u.Home, "USER": u.Name, "LOGNAME": u.Name})
	if r.call.TTY != nil {
		env["TERM"] = r.call.term()
	}
	maps.Copy(env, r.trust)
	maps.Copy(env, r.plan.Env)
	maps.Copy(env, r.placeholders)
	if env["LANG"] == "" && env["LC_ALL"] == "" && env["LC_CTYPE"] == "" {
		env["LC_CTYPE"] = characters
	}
	out := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		out = append(out, k+"="+env[k])
	}
	return out
}

// imageEnv are the variables that the sandbox's image has.
func (r *run) imageEnv() []string {
	switch {
	case r.life != nil:
		return r.life.Env
	case r.image != nil:
		return r.image.Config.Env
	}
	return nil
}

// term is the name of the kind of terminal that the program has.
func (c *Call) term() string {
	if plainTerm(c.Term) {
		return c.Term
	}
	return "xterm-256color"
}

// plainTerm says whether s can be a terminal's name: it ends up in paths.
func plainTerm(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-+_") == ""
}
