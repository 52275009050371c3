// SPDX-License-Identifier: Apache-2.0

// Package environment makes what a sandbox is: from what the policy allowed
// (policy.Plan) to what a driver is handed (sandbox.Spec and sandbox.Exec).
//
// It has two steps. [Open] finds the root file system and with it the command that
// runs, so that the caller can judge that. [Environment.Build] opens each host path
// that the plan names, once, protects what the host itself runs later, and adds
// scratch directories, the root and the program.
//
// It decides nothing and records nothing: its errors say what cannot be had.
package environment

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// First is what runs first in an environment.
type First int

// What runs first.
const (
	Command First = iota // Options.Program, or else Call.Argv, completed by what an image says
	Script               // Call.Argv as it is, whatever an image says
	Agent                // the guest agent, which starts programs later
	Fetch                // the program that makes a declared request
)

// Options say what environment is wanted.
type Options struct {
	ID string
	// Dir is the sandbox's run directory, and Images where container images are kept.
	Dir, Images string
	// Host opens the host's files. Required.
	Host *Host
	// Call is what was asked for, and Plan what the policy made of it. Open sets
	// Plan.Rootfs where the image turns out to be a plain directory.
	Call *policy.Call
	Plan *policy.Plan
	// Caps is what the level has.
	Caps  sandbox.Capabilities
	First First
	// Program is code that runs first; nil is Call.Argv.
	Program *Program
	// Owner is whose templates count, before the operator's: the ID of a key, or empty.
	Owner string
	// Digest is the image's, where the sandbox goes on from one that was written down.
	Digest string
	// Hostname and MachineID are what the sandbox calls itself, where they are not empty and
	// the root is not a directory of the operator's, which has names of its own.
	Hostname, MachineID string
	// Step makes it the environment of a step of a build; nil for any other.
	Step *Step
	// Read are files that were read for the call. No code may change them.
	Read []sandbox.HostFile
	// Progress is told how much of an image was read, and Packing how much of this host's
	// files was packed, in bytes, and Notice sentences for people. All may be nil, and must
	// not block.
	Progress func(done, total int64)
	Packing  func(done, total int64)
	Notice   func(string)
}

// Environment is what one sandbox is made of. Its cleanup, which is the one of its
// Host, closes what it opened. It is for one goroutine.
type Environment struct {
	Spec *sandbox.Spec
	Exec *sandbox.Exec
	// Dir is the working directory, and Search is PATH.
	Dir    string
	Search []string
	// Mounts are those that the plan names, without those of the root, of the program,
	// and over parts of them.
	Mounts []Mount
	// Image is the container image that is the root; nil for any other root.
	Image *image.Stored
	// ImageEnv are the image's variables, and Trust those that say whom to trust.
	ImageEnv []string
	Trust    map[string]string
	// Kept are names of the host's that must stay what they are.
	Kept Kept
	// PathTools are what is shown of the caller's PATH; nil without.
	PathTools *PathTools
	// Found is what came of read-write mounts, once the cleanup has run.
	Found *Found

	o         Options
	workspace *hostpath.Source // nil without one
	store     *image.Store
	git       []gitMount // where git is told something
	private   []string   // directories of the user's that are made for files in them
	noGit     bool       // the placeholder of a .git is somewhere
}

// Mount is a mount that the plan names.
type Mount struct {
	sandbox.Mount
	GitWrite bool // code may write in its repositories
	Shared   bool // other sandboxes may have it read-write
}

// workspaceTarget is where the workspace shows, and then the working directory: below
// /home/user it would hide what programs keep at home.
const workspaceTarget = "/workspace"

// Open finds the root and the command. It opens nothing else.
func Open(ctx context.Context, o Options) (*Environment, error) {
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	e := &Environment{
		Spec: &sandbox.Spec{ID: o.ID, User: sandbox.DefaultUser(), Limits: o.Plan.Limits, StateDir: o.Dir},
		Exec: &sandbox.Exec{}, Found: &Found{}, o: o,
	}
	if o.Plan.BestEffort {
		e.Spec.Limits.Explicit = nil // the caller has seen what is off or emulated; none is insisted on
	}
	if o.Plan.Root {
		e.Spec.User = sandbox.RootUser()
	}
	e.Spec.Sudo = o.Caps.Root && (o.Call.Sudo || o.Plan.Root && !listsCommands(o.Plan))
	e.Spec.Snapshots = o.First == Agent && o.Caps.Snapshot
	open := e.findImage
	if o.Step != nil {
		open = e.openStep
	}
	if err := open(ctx); err != nil {
		return nil, err
	}
	if o.Plan.Rootfs == nil {
		e.Spec.Hostname, e.Spec.MachineID = o.Hostname, o.MachineID
	}
	if err := e.command(); err != nil {
		return nil, err
	}
	e.Dir = e.workingDir()
	return e, nil
}

// BuildOptions are the parts of an environment that others make.
type BuildOptions struct {
	// Network is the sandbox's wire; nil is none.
	Network *sandbox.Network
	// Authority signs for hosts whose TLS is ended; nil when none is.
	Authority *ca.Authority
	// Logins are files by which agents find their logins.
	Logins []HomeFile
	// Commands gives names of programs that an argv starts and that may be executed besides
	// those of the policy's list: a question is put about them. Required.
	Commands func(argv []string) []string
}

// Build makes the rest, all but Exec.Env; see [Environment.Variables]. It is called once.
func (e *Environment) Build(ctx context.Context, b BuildOptions) error {
	e.Spec.Network = b.Network
	for _, step := range []func() error{
		func() error { return e.addMounts(ctx) },
		e.addVolumes,
		e.addGit,
		e.addNameServer,
		func() error { return e.addTrust(b.Authority) },
		func() error { return e.addLogins(b.Logins) },
		e.addProgram,
		e.addHome,
		e.addScratch,
		func() error { return e.addRoot(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	e.Exec.Dir = e.Dir
	return e.enforceCommands(b.Commands)
}

// command completes the argv by what the image says.
func (e *Environment) command() error {
	if e.o.First > Script || e.o.Program != nil {
		return nil
	}
	e.Exec.Argv = e.o.Call.Argv
	if e.Image == nil || e.o.First == Script {
		return nil
	}
	if e.Exec.Argv = e.Image.Command(e.o.Call.Entrypoint, e.o.Call.Argv); len(e.Exec.Argv) == 0 {
		return &sandbox.Error{Op: "run", Kind: sandbox.ErrInvalid, Problem: "there is no command, and the image names none", Hint: "write one after --"}
	}
	return nil
}

// workingDir is what the call says, else the workspace, else the image's, else
// the private home.
func (e *Environment) workingDir() string {
	if ws := e.o.Plan.Workspace; e.o.Call.Cwd == "" && ws != nil {
		return WorkspaceTarget(ws)
	}
	return cmp.Or(e.o.Call.Cwd, e.imageDir(), sandbox.DefaultUser().Home)
}

// WorkspaceTarget is where a workspace shows inside.
func WorkspaceTarget(m *policy.PlanMount) string { return cmp.Or(m.Target, workspaceTarget) }

// addMounts opens the workspace and the mounts.
func (e *Environment) addMounts(ctx context.Context) error {
	if ws := e.o.Plan.Workspace; ws != nil {
		m := *ws
		m.Target = WorkspaceTarget(ws)
		if err := e.mount(ctx, m, "workspace"); err != nil {
			return err
		}
	}
	for _, m := range e.o.Plan.Mounts {
		m.Target = cmp.Or(m.Target, path.Join(e.Dir, filepath.Base(m.Source)))
		if err := e.mount(ctx, m, "mount"); err != nil {
			return err
		}
	}
	return nil
}

// mount opens one source, scans it for what must be hidden or kept, and adds
// it to the Spec.
func (e *Environment) mount(ctx context.Context, m policy.PlanMount, purpose string) error {
	src, err := e.o.Host.Open(m.PlanPath, purpose, m.Access)
	if err != nil {
		return err
	}
	if purpose == "workspace" && !src.Dir {
		return &sandbox.Error{Op: "workspace " + sandbox.Quoted(m.Source), Kind: sandbox.ErrInvalid, Problem: "it is a file", Hint: "name a directory, or use --mount"}
	}
	if purpose == "workspace" {
		e.workspace = src
	}
	same := func(have sandbox.Mount) bool { return have.Target == m.Target }
	if i := slices.IndexFunc(e.Spec.Mounts, same); i >= 0 {
		return &sandbox.Error{Op: "mount " + sandbox.Quoted(m.Source), Kind: sandbox.ErrInvalid,
			Problem: sandbox.Quoted(e.Spec.Mounts[i].Name) + " is already at " + m.Target, Hint: "give it another target: " + m.Source + ":/data"}
	}
	mount := sandbox.Mount{Source: src.File, Name: src.Name, Target: m.Target, Access: m.Access, Dir: src.Dir}
	e.Spec.Mounts = append(e.Spec.Mounts, mount)
	e.Mounts = append(e.Mounts, Mount{mount, m.GitWrite, m.Shared})
	if m.Access == sandbox.CopyOnWrite && src.Dir && has(src, ".git") {
		e.git = append(e.git, gitMount{target: m.Target, copied: true})
	}
	return e.protect(ctx, src, m)
}

// show mounts the file of this process's that is at name over a path inside, read-only.
func (e *Environment) show(name, target string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	e.o.Host.Undo.Close(f)
	e.Spec.Mounts = append(e.Spec.Mounts, sandbox.Mount{Source: f, Name: name, Target: target})
	return nil
}
