// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// PathTools are what is shown of the directories of the caller's PATH, all of it
// read-only. The caller closes it.
type PathTools struct {
	// Chains are shown with their programs in PATH, in its order. Behind are what
	// links in them lead to.
	Chains, Behind []*hostpath.Source
	// Left are directories of PATH that are not shown, and why.
	Left []Left
}

// Left is a directory that is not shown.
type Left struct{ Dir, Why string }

// Bounds of what PATH may bring along.
const (
	maxPathDirs = 32
	maxPathAll  = 96
	maxBinNames = 2048
)

// Close closes what was opened.
func (t *PathTools) Close() error {
	for _, s := range slices.Concat(t.Chains, t.Behind) {
		s.Close()
	}
	return nil
}

// Names are the places that are shown.
func (t *PathTools) Names() (out []string) {
	for _, s := range slices.Concat(t.Chains, t.Behind) {
		out = append(out, s.Real)
	}
	return out
}

// PathTools opens the directories of the caller's PATH: of each the version's directory
// where it is in one, else itself and what its links lead to. Only what the caller or
// root owns and no other user may write is among them, and nothing of the workspace,
// which may be nil: code could have made it. With public no directory of programs is among
// them that not everybody may look into: a level that copies them would show it empty.
func (h *Host) PathTools(dirs []string, workspace *hostpath.Source, public bool) *PathTools {
	t := &PathTools{}
	f := &pathFinder{h: h, t: t, workspace: workspace, public: public}
	for i, dir := range dirs {
		if i == maxPathDirs {
			t.Left = append(t.Left, Left{dir, "PATH is longer than caisson reads"})
			break
		}
		if why := f.add(dir); why != "" {
			t.Left = append(t.Left, Left{dir, why})
		}
	}
	return t
}

type pathFinder struct {
	h         *Host
	t         *PathTools
	workspace *hostpath.Source
	public    bool
}

// usualDirs are those that every root has by itself, and usualTrees are no version's.
var (
	usualDirs  = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	usualTrees = []string{"/", "/usr", "/usr/local", "/opt", "/home", "/srv", "/var"}
)

// add takes a directory of PATH, or says why not.
func (f *pathFinder) add(dir string) (why string) {
	if slices.Contains(usualDirs, filepath.Clean(dir)) {
		return ""
	}
	bin, why := f.open(dir)
	if why != "" {
		return why
	}
	if slices.Contains(usualDirs, bin.Real) || f.shown(bin.Real) {
		bin.Close()
		return ""
	}
	if why := startsElsewhere(bin); why != "" {
		bin.Close()
		return why
	}
	tree := f.version(bin.Real)
	if tree != nil {
		bin.Close()
		bin = tree
	}
	if f.public && !public(bin) {
		bin.Close()
		return "not everybody may look into it, and a virtual machine is shown what everybody may"
	}
	f.t.Chains = append(f.t.Chains, bin)
	if tree == nil {
		f.links(bin)
	}
	return ""
}

// public says whether everybody may look into a directory.
func public(dir *hostpath.Source) bool {
	info, err := dir.File.Stat()
	return err == nil && info.Mode().Perm()&0o005 == 0o005
}

// open opens and judges what is to be shown.
func (f *pathFinder) open(name string) (_ *hostpath.Source, why string) {
	if !filepath.IsAbs(name) {
		return nil, "it is not absolute"
	}
	src, err := hostpath.Open(name, hostpath.Options{StateDir: f.h.StateDir, Purpose: "toolchain"})
	if err != nil {
		return nil, strings.TrimPrefix(err.Error(), "toolchain "+name+": ")
	}
	if why := f.refused(src); why != "" {
		src.Close()
		return nil, why
	}
	return src, ""
}

func (f *pathFinder) refused(src *hostpath.Source) string {
	w := f.workspace
	switch {
	case len(f.t.Chains)+len(f.t.Behind) >= maxPathAll:
		return "PATH leads to more than caisson shows"
	case strings.Contains(src.Real, ":"):
		return "its name holds a colon"
	case w != nil && (sandbox.Within(src.Real, w.Real) || sandbox.Within(w.Real, src.Real)):
		return "it lies in the workspace, or the workspace in it"
	case inside(src.Real):
		return "something else is there inside"
	}
	return ownedByUs(src.File)
}

// inside says whether a place is the sandbox's own.
func inside(at string) bool {
	return slices.ContainsFunc([]string{workspaceTarget, "/proc", "/sys", "/dev", "/run", "/etc", sandbox.DefaultUser().Home}, func(own string) bool { return sandbox.Within(at, own) })
}

// shown says whether a place is in what is shown already.
func (f *pathFinder) shown(at string) bool {
	return slices.ContainsFunc(slices.Concat(f.t.Chains, f.t.Behind), func(s *hostpath.Source) bool { return sandbox.Within(at, s.Real) })
}

// startsElsewhere says of a directory of programs that they start others, which are not
// beside them: those of pyenv, asdf, mise, Volta and rustup.
func startsElsewhere(bin *hostpath.Source) string {
	if filepath.Base(bin.Real) == "shims" || filepath.Base(bin.Real) == "fnm_multishells" {
		return "its programs start others elsewhere: name the version's directory in files.toolchains"
	}
	for _, name := range []string{"volta-shim", "rustup"} {
		if f, err := openBelow(bin.File, name); err == nil {
			f.Close()
			return name + " in it starts programs elsewhere: name the version's directory in files.toolchains"
		}
	}
	return ""
}

// version opens the directory that a bin is of, where it is one version of something and
// nothing else: by its libraries, or a file that says so. nil is none.
func (f *pathFinder) version(bin string) *hostpath.Source {
	tree := filepath.Dir(bin)
	if base := filepath.Base(bin); base != "bin" && base != "sbin" || slices.Contains(usualTrees, tree) || filepath.Base(tree) == ".local" {
		return nil
	}
	src, why := f.open(tree)
	if why != "" {
		return nil
	}
	if has(src, "etc/npmrc") || has(src, ".npmrc") || has(src, ".git") || has(src, "package.json") {
		src.Close() // credentials, or a user's project
		return nil
	}
	for _, signs := range [][]string{
		{"lib/node_modules"}, {"lib", "include"}, {"pyvenv.cfg"}, {"VERSION", "pkg"}, {"VERSION", "lib"}, {"release", "lib"},
	} {
		if !slices.ContainsFunc(signs, func(s string) bool { return !has(src, s) }) {
			return src
		}
	}
	src.Close()
	return nil
}

func has(src *hostpath.Source, name string) bool {
	f, err := openBelow(src.File, name)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// links shows what links in a directory of programs lead to: an installed package's
// modules, the tree of a version, or the file alone.
func (f *pathFinder) links(bin *hostpath.Source) {
	d, err := Reopen(bin.File)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxBinNames)
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(bin.Real, name))
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			continue
		}
		to, err := filepath.EvalSymlinks(filepath.Join(bin.Real, name))
		if err != nil || f.shown(to) || inHostRoot(to) {
			continue
		}
		if why := f.behind(to); why != "" {
			f.t.Left = append(f.t.Left, Left{filepath.Join(bin.Real, name), why})
		}
	}
}

func inHostRoot(at string) bool {
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib"}, func(d string) bool { return sandbox.Within(at, d) })
}

func (f *pathFinder) behind(to string) (why string) {
	var src *hostpath.Source
	if before, _, ok := strings.Cut(to, "/node_modules/"); ok {
		src, why = f.open(before + "/node_modules")
	} else if src = f.version(filepath.Dir(to)); src == nil {
		src, why = f.open(to)
	}
	if why == "" {
		f.t.Behind = append(f.t.Behind, src)
	}
	return why
}

// addPathTools opens what the plan shows of the caller's PATH, and mounts what is behind
// links; the others become toolchains of the root.
func (e *Environment) addPathTools() []*hostpath.Source {
	p := e.o.Plan.PathTools
	if p == nil {
		return nil
	}
	t := e.o.Host.PathTools(p.Dirs, e.workspace, e.packed())
	e.o.Host.Undo.Close(t)
	e.PathTools = t
	for _, src := range t.Behind {
		if slices.ContainsFunc(t.Chains, func(c *hostpath.Source) bool { return sandbox.Within(src.Real, c.Real) }) {
			continue
		}
		e.Spec.Mounts = append(e.Spec.Mounts, sandbox.Mount{Source: src.File, Name: src.Name, Target: src.Real, Dir: src.Dir})
	}
	return t.Chains
}
