// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Git is told two things, in its system's configuration, for the repositories of a mount
// alone; what a user's own configuration says inside comes after that. Placeholders in a
// read-write mount look like new files, and so does what is hidden there: it is to ignore
// them. In a copy-on-write mount no
// file has the inode and the change time that the host's index has of it, and git would
// read all of them to find that they are the same: it is to compare size and modification
// time alone.

// systemGit is git's system-wide configuration, and gitDir where the files lie that it
// names.
const (
	systemGit = "/etc/gitconfig"
	gitDir    = "/etc/caisson"
)

// maxSystemGit bounds what is read of an image's.
const maxSystemGit = 1 << 20

// gitMount is a mount in which git is told something.
type gitMount struct {
	target   string
	patterns []string // of placeholders and of what is hidden, as in a .gitignore at the top of each of its repositories
	copied   bool     // it is copy-on-write
}

// config is what git is told there. excludes is where the patterns are.
func (m *gitMount) config(excludes string) string {
	text := "[core]\n"
	if m.copied {
		text += "\tcheckStat = minimal\n\ttrustctime = false\n"
	}
	if len(m.patterns) > 0 {
		text += "\texcludesFile = " + excludes + "\n"
	}
	return text
}

// note notes what was made in a mount for the time of the sandbox.
func (e *Environment) note(target string, placeholders []string) {
	var anchors []string // where repositories begin
	for _, rel := range placeholders {
		if dir := path.Dir(rel); dir != "." && path.Base(rel) == ".envrc" {
			anchors = append(anchors, dir)
		}
	}
	var patterns []string
	for _, rel := range placeholders {
		if path.Base(rel) == ".git" {
			e.noGit = true
			continue
		}
		at := ""
		for _, dir := range anchors {
			if strings.HasPrefix(rel, dir+"/") && len(dir) > len(at) {
				at = dir
			}
		}
		if rest := strings.TrimPrefix(strings.TrimPrefix(rel, at), "/"); !strings.ContainsAny(rest, "\n\r") {
			patterns = append(patterns, "/"+ignorePattern(rest))
		}
	}
	e.ignore(target, patterns)
}

// ignore has git pass over files that match patterns, in a mount's repositories.
func (e *Environment) ignore(target string, patterns []string) {
	if len(patterns) == 0 {
		return
	}
	i := slices.IndexFunc(e.git, func(m gitMount) bool { return m.target == target })
	if i < 0 {
		i, e.git = len(e.git), append(e.git, gitMount{target: target})
	}
	m := &e.git[i]
	m.patterns = append(m.patterns, patterns...)
	slices.Sort(m.patterns)
	m.patterns = slices.Compact(m.patterns)
}

// ignoreHidden has git pass over what is hidden in a mount's repositories. It cannot read
// it, and would add nothing at all.
func (e *Environment) ignoreHidden(src *hostpath.Source, target string, hidden []string) {
	known := map[string]bool{}
	isTop := func(dir string) bool {
		is, ok := known[dir]
		if !ok {
			f, err := openBelow(src.File, path.Join(dir, ".git"))
			if is = err == nil; is {
				f.Close()
			}
			known[dir] = is
		}
		return is
	}
	var patterns []string
	for _, rel := range hidden {
		top := path.Dir(rel)
		for top != "." && !isTop(top) {
			top = path.Dir(top)
		}
		rest := strings.TrimPrefix(rel, top+"/")
		if isTop(top) && !strings.ContainsAny(rest, "\n\r") {
			patterns = append(patterns, "/"+ignorePattern(rest))
		}
	}
	e.ignore(target, patterns)
}

// ignorePattern writes a path as a pattern of a .gitignore that matches it alone.
func ignorePattern(p string) string {
	p = escapeGlob(p)
	if trimmed := strings.TrimRight(p, " "); trimmed != p {
		p = trimmed + strings.Repeat(`\ `, len(p)-len(trimmed))
	}
	return p
}

// addGit has git, and Go, pass over what was made in read-write mounts, and git compare
// less in copies. A root tree of the operator's stays as it is.
func (e *Environment) addGit() error {
	if e.noGit {
		// Go takes the placeholder of a .git for a repository, and asks git of it.
		e.addGoFlag("-buildvcs=false")
	}
	named := func(m sandbox.Mount) bool {
		return sandbox.Within(systemGit, m.Target) || sandbox.Within(gitDir, m.Target)
	}
	if len(e.git) == 0 || e.o.Plan.Rootfs != nil || slices.ContainsFunc(e.Spec.Mounts, named) {
		return nil
	}
	config, err := e.imageGit()
	if err == nil {
		err = e.writeGit(config)
	}
	if err != nil {
		return &sandbox.Error{Op: "prepare sandbox", Kind: sandbox.ErrUnavailable, Problem: "git's configuration cannot be written", Hint: "free some space in the state directory", Cause: err}
	}
	return nil
}

// imageGit is what an image has of that configuration.
func (e *Environment) imageGit() ([]byte, error) {
	if e.Image == nil {
		return nil, nil
	}
	b, err := e.imageFile(systemGit, maxSystemGit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// writeGit writes the configuration, before what the root has of it, and shows it.
func (e *Environment) writeGit(root []byte) error {
	var config strings.Builder
	show := func(name, target, text string) error {
		name = filepath.Join(e.Spec.StateDir, name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
		return e.show(name, target)
	}
	for i, m := range e.git {
		name := fmt.Sprintf("git-%d", i)
		at := path.Join(gitDir, name)
		fmt.Fprintf(&config, "[includeIf %s]\n\tpath = %s\n", gitString("gitdir:"+escapeGlob(strings.TrimSuffix(m.target, "/"))+"/"), at)
		if err := show(name, at, m.config(at+"-exclude")); err != nil {
			return err
		}
		if len(m.patterns) == 0 {
			continue
		}
		if err := show(name+"-exclude", at+"-exclude", strings.Join(m.patterns, "\n")+"\n"); err != nil {
			return err
		}
	}
	return show("gitconfig", systemGit, config.String()+string(root))
}

// gitString quotes the name of a section.
func gitString(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// addGoFlag adds a flag of Go's to those that an image has.
func (e *Environment) addGoFlag(flag string) {
	const name = "GOFLAGS="
	for i, v := range e.ImageEnv {
		if flags, ok := strings.CutPrefix(v, name); ok {
			e.ImageEnv = slices.Clone(e.ImageEnv)
			e.ImageEnv[i] = name + strings.TrimSpace(flags+" "+flag)
			return
		}
	}
	e.ImageEnv = append(slices.Clone(e.ImageEnv), name+flag)
}
