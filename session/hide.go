// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// guardMount looks through a mount for what the plan hides, for sockets where
// the level does not make them inert and, where the sandbox may change the host's
// files, for what the host itself runs later and what was read for the run; and
// adds to w what has to be mounted over the mount for it.
func (r *run) guardMount(ctx context.Context, w *world, src *hostpath.Source, m policy.PlanMount) error {
	deny, err := r.denied(m.Target, w.cwd)
	if err != nil {
		return err
	}
	protect := m.Access == sandbox.ReadWrite
	// A copy-on-write mount has inodes of its own, which nobody listens on.
	peers := !r.caps.InertSockets && m.Access != sandbox.CopyOnWrite
	if !protect && (!src.Dir || len(deny) == 0 && !peers) {
		return nil
	}
	o := hostpath.ScanOptions{Deny: deny, Protect: protect, GitWrite: m.GitWrite, Peers: peers}
	if protect {
		o.Inputs = r.inputs()
	}
	matches, err := r.scan(ctx, src, o)
	if err != nil {
		return err
	}
	for _, x := range matches {
		if x.Do == hostpath.Watch {
			continue
		}
		target := path.Join(m.Target, x.Rel)
		if x.Do == hostpath.Hide {
			w.spec.Masks = append(w.spec.Masks, sandbox.Mask{Target: target, Dir: x.Dir})
			continue
		}
		// The same object once more: read-only, or as it is, so that it cannot
		// be renamed away.
		f, err := openBelow(src.File, x.Rel)
		if err != nil {
			return &sandbox.Error{Op: "mount " + quoted(src.Name), Kind: sandbox.ErrUnavailable, Problem: quoted(x.Rel) + " changed while it was looked at",
				Hint: "try again", Cause: err}
		}
		r.undo.add(func(context.Context) error { return f.Close() })
		again := sandbox.Mount{Source: f, Name: filepath.Join(src.Name, x.Rel), Target: target, Dir: x.Dir}
		if x.Do == hostpath.Pin {
			again.Access = m.Access
		}
		if err := r.keepName(src, x.Rel, again.Name, f); err != nil {
			return &sandbox.Error{Op: "mount " + quoted(src.Name), Kind: sandbox.ErrUnavailable, Problem: quoted(x.Rel) + " changed while it was looked at",
				Hint: "try again", Cause: err}
		}
		w.spec.Mounts = append(w.spec.Mounts, again)
	}
	return nil
}

// scan looks through a tree, and makes placeholders where something must not
// come into being.
func (r *run) scan(ctx context.Context, src *hostpath.Source, o hostpath.ScanOptions) ([]hostpath.Match, error) {
	if !o.Protect || !src.Dir {
		return hostpath.Scan(ctx, src, o)
	}
	p, err := hostpath.Join(r.s.placeholders(), src)
	if err != nil {
		return nil, err
	}
	r.undo.add(func(context.Context) error { return p.Close() })
	for range 3 {
		var matches []hostpath.Match
		if matches, err = hostpath.Scan(ctx, src, o); err != nil {
			return nil, err
		}
		// Somebody else may be at work in the tree: then look again.
		if err = p.Make(matches); err == nil {
			r.lookAfter(src, hostpath.Remember(src, p, matches))
			return matches, nil
		}
		if !errors.Is(err, sandbox.ErrConflict) {
			return nil, err
		}
	}
	return nil, err
}

// denied are the plan's patterns that can match below target, seen from there.
// A mount that a pattern denies as a whole is refused: an empty directory in
// its place would only puzzle.
func (r *run) denied(target, cwd string) ([]string, error) {
	var out []string
	for _, pattern := range r.plan.Deny {
		rest, whole := seenFrom(pattern, target, cwd)
		if whole {
			return nil, &sandbox.Error{Op: "mount at " + target, Kind: sandbox.ErrDenied, Problem: "it is denied by " + quoted(pattern),
				Hint: "drop the mount, or the pattern", Rule: r.plan.From["files.deny."+pattern]}
		}
		out = append(out, rest...)
	}
	return out, nil
}

// seenFrom turns a pattern on paths inside (policy.Glob) into patterns on
// paths relative to the directory target. whole says that it matches target
// itself, or a directory above it.
func seenFrom(pattern, target, cwd string) (rest []string, whole bool) {
	if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "**/") && pattern != "**" {
		pattern = strings.TrimSuffix(escapeGlob(cwd), "/") + "/" + pattern
	}
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	at := strings.Split(strings.Trim(target, "/"), "/")
	seen := map[string]bool{}
	var walk func(g, t []string)
	walk = func(g, t []string) {
		if len(g) == 0 {
			whole = true
			return
		}
		if len(t) == 0 {
			// "**" at the end matches what is below, not the directory.
			if s := strings.Join(g, "/"); !seen[s] {
				seen[s] = true
				rest = append(rest, s)
			}
			return
		}
		if g[0] == "**" {
			if len(g) > 1 {
				walk(g[1:], t)
			}
			walk(g, t[1:])
			return
		}
		if ok, err := path.Match(g[0], t[0]); ok || err != nil {
			walk(g[1:], t[1:])
		}
	}
	walk(parts, at)
	return rest, whole
}

// escapeGlob writes a plain path as a pattern of itself.
func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `{`, `\{`).Replace(p)
}
