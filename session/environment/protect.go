// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// protect looks through a mount for what the plan hides, for sockets where
// the level does not make them inert and, where the sandbox may change the host's
// files, for what the host itself runs later and what was read for the run; and
// adds what has to be mounted over the mount for it.
func (e *Environment) protect(ctx context.Context, src *hostpath.Source, m policy.PlanMount) error {
	deny, err := e.denied(m.Target)
	if err != nil {
		return err
	}
	live := m.Access == sandbox.ReadWrite
	// A copy-on-write mount has inodes of its own, on which no process listens.
	peers := !e.o.Caps.InertSockets && m.Access != sandbox.CopyOnWrite
	if !live && (!src.Dir || len(deny) == 0 && !peers) {
		return nil
	}
	o := hostpath.ScanOptions{Deny: deny, Protect: live, GitWrite: m.GitWrite, Peers: peers}
	if live {
		o.Inputs = e.inputs()
	}
	if live {
		err := src.Claim(hostpath.Use{Run: e.Spec.StateDir, StateDir: e.o.Host.StateDir, Level: e.o.Plan.Isolation, Own: !e.o.Caps.LiveFiles, Shared: m.Shared})
		if err != nil {
			return err
		}
	}
	matches, err := e.scan(ctx, src, m.Target, o)
	if err != nil {
		return err
	}
	var hidden []string
	for _, x := range matches {
		if x.Do == hostpath.Watch {
			continue
		}
		target := path.Join(m.Target, x.Rel)
		if x.Do == hostpath.Hide {
			e.Spec.Masks = append(e.Spec.Masks, sandbox.Mask{Target: target, Dir: x.Dir})
			hidden = append(hidden, x.Rel)
			continue
		}
		// The same object once more: read-only, or as it is, so that it cannot
		// be renamed away.
		f, err := openBelow(src.File, x.Rel)
		if err != nil {
			return &sandbox.Error{Op: "mount " + sandbox.Quoted(src.Name), Kind: sandbox.ErrUnavailable, Problem: sandbox.Quoted(x.Rel) + " changed while it was looked at",
				Hint: "try again", Cause: err}
		}
		e.o.Host.Undo.Close(f)
		again := sandbox.Mount{Source: f, Name: filepath.Join(src.Name, x.Rel), Target: target, Dir: x.Dir}
		if x.Do == hostpath.Pin {
			again.Access = m.Access
		}
		if err := e.keepName(src, x.Rel, again.Name, f); err != nil {
			return &sandbox.Error{Op: "mount " + sandbox.Quoted(src.Name), Kind: sandbox.ErrUnavailable, Problem: sandbox.Quoted(x.Rel) + " changed while it was looked at",
				Hint: "try again", Cause: err}
		}
		e.Spec.Mounts = append(e.Spec.Mounts, again)
	}
	if src.Dir {
		e.ignoreHidden(src, m.Target, hidden)
	}
	return nil
}

// inputs are the files that were read for this sandbox, or are going to be: policies, files
// of variables, secrets and certificates, an image, a script, and this program. Who could
// write to one in a mount would decide what the next run may do.
func (e *Environment) inputs() []hostpath.Input {
	var out []hostpath.Input
	for _, f := range slices.Concat(e.o.Read, e.o.Plan.Reads()) {
		out = append(out, hostpath.Input{Path: f.Path, File: f.File})
	}
	if p := e.o.Program; p != nil && p.File != "" {
		out = append(out, hostpath.Input{Path: p.File})
	}
	for _, name := range ownFiles() {
		out = append(out, hostpath.Input{Path: name, Own: true})
	}
	return out
}

// ownFiles are what caisson runs and reads by itself: its program, and what its
// environment names of certificates and of registries' credentials.
func ownFiles() (out []string) {
	if self, err := os.Executable(); err == nil {
		if _, err := os.Stat(self); err == nil { // it may be gone since it was started
			out = append(out, self)
		}
	}
	names := append(filepath.SplitList(os.Getenv("SSL_CERT_DIR")), os.Getenv("SSL_CERT_FILE"), os.Getenv("REGISTRY_AUTH_FILE"), os.Getenv("DOCKER_CERT_PATH"))
	if dir := os.Getenv("DOCKER_CONFIG"); dir != "" {
		names = append(names, dir+"/config.json")
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if at, err := files.Absolute(name); err == nil && at != "" {
			out = append(out, at)
		}
	}
	return out
}

// scan looks through a tree, and makes placeholders where something must not
// come into being.
func (e *Environment) scan(ctx context.Context, src *hostpath.Source, target string, o hostpath.ScanOptions) ([]hostpath.Match, error) {
	if !o.Protect || !src.Dir {
		return hostpath.Scan(ctx, src, o)
	}
	p, err := hostpath.Join(e.o.Host.Placeholders(), src)
	if err != nil {
		return nil, err
	}
	e.o.Host.Undo.Close(p)
	for range 3 {
		var matches []hostpath.Match
		if matches, err = hostpath.Scan(ctx, src, o); err != nil {
			return nil, err
		}
		// Another process may be at work in the tree: then look again.
		if err = p.Make(matches); err == nil {
			e.lookAfter(src, hostpath.Remember(src, p, matches))
			e.note(target, p.Files(matches))
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
func (e *Environment) denied(target string) ([]string, error) {
	var out []string
	for _, pattern := range e.o.Plan.Deny {
		rest, whole := seenFrom(pattern, target, e.Dir)
		if whole {
			return nil, &sandbox.Error{Op: "mount at " + target, Kind: sandbox.ErrDenied, Problem: "it is denied by " + sandbox.Quoted(pattern),
				Hint: "drop the mount, or the pattern", Rule: e.o.Plan.From["files.deny."+pattern]}
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
