// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"os"
	"path/filepath"
	"strconv"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// open opens a host path of the plan and judges the object it got: what it is,
// where it is, and that it lies beneath every source a policy file named.
func (r *run) open(p policy.PlanPath, purpose string, access sandbox.Access) (*hostpath.Source, error) {
	src, err := hostpath.Open(p.Source, hostpath.Options{
		AllowDangerous: r.call.AllowDangerousMounts, Write: access == sandbox.ReadWrite,
		StateDir: r.s.o.State.Path(), Purpose: purpose,
	})
	if err != nil {
		return nil, err
	}
	r.undo.add(func(context.Context) error { return src.Close() })
	for _, above := range p.Beneath {
		if err := beneath(src, above, purpose); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// beneath refuses an object that a link led out of the source that allows it:
// the policy compared names, this compares where they really are.
func beneath(src *hostpath.Source, above, purpose string) error {
	real, err := filepath.EvalSymlinks(above)
	if err == nil && sandbox.Within(src.Real, real) {
		return nil
	}
	return &sandbox.Error{Op: purpose + " " + quoted(src.Name), Kind: sandbox.ErrDenied, Problem: "it is really " + quoted(src.Real) + ", outside of " + quoted(above),
		Hint: "name a path that no link leads out of, or add its real place to the policy", Rule: "built-in: beneath what the policy names", Cause: err}
}

// readFile reads the file that run FILE names. It is judged like a mount: its
// contents are shown inside.
func (r *run) readFile(name, language string) (*Source, error) {
	src, err := r.open(policy.PlanPath{Source: name}, "run", sandbox.ReadOnly)
	if err != nil {
		return nil, err
	}
	if src.Dir {
		return nil, &sandbox.Error{Op: "run " + quoted(name), Kind: sandbox.ErrInvalid, Problem: "it is a directory",
			Hint: "name a file in it, and show the directory with --workspace"}
	}
	// The very object that was judged: through its handle, not by its name.
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(src.File.Fd())))
	if err != nil {
		return nil, &sandbox.Error{Op: "run " + quoted(name), Kind: sandbox.ErrInvalid, Problem: "it may not be read", Hint: "check its permissions", Cause: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &sandbox.Error{Op: "run " + quoted(name), Kind: sandbox.ErrUnavailable, Problem: "it cannot be examined", Cause: err}
	}
	code, err := ReadSource(name, f)
	if err != nil {
		return nil, err
	}
	if isELF(code) {
		if info.Mode().Perm()&0o111 == 0 {
			return nil, &sandbox.Error{Op: "run " + quoted(name), Kind: sandbox.ErrInvalid, Problem: "it is a compiled program that may not be executed", Hint: "chmod +x " + name}
		}
		r.binary = src
		code = code[:min(len(code), MaxSource)] // programs may be larger than source; the record has their beginning
	}
	return &Source{Name: name, Language: language, Code: code}, nil
}

// addRoot builds the root filesystem and returns PATH: the host's toolchain, a
// container image, or another tree.
func (r *run) addRoot(ctx context.Context, w *world) ([]string, error) {
	var chains []*hostpath.Source
	for _, p := range r.plan.Toolchains {
		src, err := r.open(p, "toolchain", sandbox.ReadOnly)
		if err != nil {
			return nil, err
		}
		chains = append(chains, src)
	}
	root, err := r.root(ctx, w, chains)
	if err != nil {
		return nil, err
	}
	r.undo.add(func(context.Context) error { return root.Close() })
	w.spec.Root = root.Sandbox()
	w.spec.Mounts = append(root.Mounts(), w.spec.Mounts...)
	return root.Path, nil
}

func (r *run) root(ctx context.Context, w *world, chains []*hostpath.Source) (*image.Root, error) {
	if r.image != nil {
		return r.store.Root(ctx, r.image, image.RootOptions{EROFS: r.caps.EROFS, Toolchains: chains, Targets: targets(w.spec)})
	}
	if p := r.plan.Rootfs; p != nil {
		src, err := r.open(*p, "rootfs", sandbox.ReadOnly)
		if err != nil {
			return nil, err
		}
		return image.Dir(ctx, src, image.DirOptions{Toolchains: chains, Targets: targets(w.spec)})
	}
	o := image.HostOptions{
		Cache: filepath.Join(r.s.o.State.Path(), "cache"), Toolchains: chains, User: w.spec.User, Targets: targets(w.spec),
	}
	o.Programs = r.kind == policy.StartSandbox
	if n := w.spec.Network; n != nil {
		o.NameServer = n.Gateway
	}
	return image.Host(ctx, o)
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
