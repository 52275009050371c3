// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"path/filepath"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// Host opens files of this host for one call.
type Host struct {
	// StateDir is the state directory, which no sandbox may see.
	StateDir string
	// AllowDangerous lets home folders, keys and credentials through: the operator's
	// explicit word.
	AllowDangerous bool
	// Undo closes what was opened. Required.
	Undo *Cleanup
}

// Open opens a host path of a plan and judges the object it got: what it is,
// where it is, and that it lies beneath every source a policy file named. purpose is
// what messages call it. The cleanup closes it.
func (h *Host) Open(p policy.PlanPath, purpose string, access sandbox.Access) (*hostpath.Source, error) {
	src, err := hostpath.Open(p.Source, hostpath.Options{
		AllowDangerous: h.AllowDangerous, Write: access == sandbox.ReadWrite, StateDir: h.StateDir, Purpose: purpose,
	})
	if err != nil {
		return nil, err
	}
	h.Undo.Close(src)
	for _, above := range p.Beneath {
		if err := beneath(src, above, purpose); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// Placeholders is the directory where it is written down what was made in workspaces.
func (h *Host) Placeholders() string { return PlaceholdersIn(h.StateDir) }

// PlaceholdersIn is that directory of a state directory.
func PlaceholdersIn(stateDir string) string { return filepath.Join(stateDir, "placeholders") }

// beneath refuses an object that a link led out of the source that allows it:
// the policy compared names, this compares where they really are.
func beneath(src *hostpath.Source, above, purpose string) error {
	real, err := filepath.EvalSymlinks(above)
	if err == nil && sandbox.Within(src.Real, real) {
		return nil
	}
	return &sandbox.Error{Op: purpose + " " + sandbox.Quoted(src.Name), Kind: sandbox.ErrDenied, Problem: "it is really " + sandbox.Quoted(src.Real) + ", outside of " + sandbox.Quoted(above),
		Hint: "name a path that no link leads out of, or add its real place to the policy", Rule: "built-in: beneath what the policy names", Cause: err}
}

// addRoot builds the root filesystem and sets Search: the host's toolchain, a
// container image, or another tree.
func (e *Environment) addRoot(ctx context.Context) error {
	var chains []*hostpath.Source
	for _, p := range e.o.Plan.Toolchains {
		src, err := e.o.Host.Open(p, "toolchain", sandbox.ReadOnly)
		if err != nil {
			return err
		}
		chains = append(chains, src)
	}
	chains = append(chains, e.addPathTools()...)
	root, err := e.root(ctx, chains)
	if err != nil {
		return err
	}
	e.o.Host.Undo.Close(root)
	e.Spec.Root = root.Sandbox()
	e.Spec.Mounts = append(root.Mounts(), e.Spec.Mounts...)
	e.Search = root.Path
	for _, n := range root.Notes {
		e.o.Notice(n)
	}
	if e.o.First == Agent {
		e.Search = append([]string{sandbox.ProgramDir}, e.Search...)
	}
	return nil
}

func (e *Environment) root(ctx context.Context, chains []*hostpath.Source) (*image.Root, error) {
	if s := e.o.Step; s != nil {
		root, _, err := s.Tree.Root(s.Config, image.RootOptions{Targets: targets(e.Spec)})
		return root, err
	}
	if e.Image != nil {
		return e.store.Root(ctx, e.Image, image.RootOptions{EROFS: e.o.Caps.EROFS, Toolchains: chains, Targets: targets(e.Spec)})
	}
	if p := e.o.Plan.Rootfs; p != nil {
		src, err := e.o.Host.Open(*p, "rootfs", sandbox.ReadOnly)
		if err != nil {
			return nil, err
		}
		if e.packed() {
			return image.PackDir(ctx, src, e.packOptions(chains))
		}
		return image.Dir(ctx, src, image.DirOptions{Toolchains: chains, Targets: targets(e.Spec)})
	}
	o := image.HostOptions{
		Cache: filepath.Join(e.o.Host.StateDir, "cache"), Toolchains: chains, User: e.Spec.User, Targets: targets(e.Spec), Programs: e.o.First == Agent,
	}
	if e.packed() {
		return image.PackHost(ctx, o, e.packOptions(chains))
	}
	if n := e.Spec.Network; n != nil {
		o.NameServer = n.Gateway
	}
	return image.Host(ctx, o)
}

// packed says whether this host's programs, or another directory, are packed to be the root.
func (e *Environment) packed() bool { return e.Image == nil && e.o.Caps.OnlyEROFS }

func (e *Environment) packOptions(chains []*hostpath.Source) image.PackOptions {
	return image.PackOptions{Cache: image.PacksIn(e.o.Host.StateDir), Toolchains: chains, Progress: e.o.Packing}
}

// targets are the paths inside that must exist for s to be mounted.
func targets(s *sandbox.Spec) []image.Target {
	var out []image.Target
	for _, m := range s.Mounts {
		out = append(out, image.Target{Path: m.Target, Dir: m.Dir})
	}
	for _, d := range s.Scratch {
		out = append(out, image.Target{Path: d.Target, Dir: true})
	}
	return out
}
