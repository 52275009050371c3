// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Group is one control group. All methods may be called from many goroutines;
// Leave, which moves the whole process, only by who owns the process.
type Group struct {
	name    string
	version int
	dirs    map[string]string // controller → directory; version 2 has one, under ""
	k       *kernel
	period  int64 // version 1: of the processors' share, where it is known

	mu      sync.Mutex
	freezer string // version 1: the directory that Freeze made, if it did

	kept kept
}

// Name is what Create was given.
func (g *Group) Name() string { return g.name }

// Version is 1 or 2.
func (g *Group) Version() int { return g.version }

// Dirs are the group's directories, sorted: one on version 2, one for each
// hierarchy on version 1. Open takes them.
func (g *Group) Dirs() []string {
	var dirs []string
	for _, dir := range g.dirs {
		dirs = append(dirs, dir)
	}
	if dir := g.dir("freezer"); dir != "" {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs) // version 1 may mount several controllers together
}

// dir is the group's directory for a controller, or "".
func (g *Group) dir(controller string) string {
	if g.version == 2 {
		if controller == "freezer" {
			return ""
		}
		controller = ""
	}
	if dir := g.dirs[controller]; dir != "" || controller != "freezer" {
		return dir
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.freezer
}

// fail is an error about the group with its cause.
func (g *Group) fail(op string, cause error) error {
	return &sandbox.Error{Op: op + " cgroup " + g.name, Kind: sandbox.ErrUnavailable, Problem: "the kernel refused it", Cause: cause}
}

// Open takes up a group that another process made, by its Dirs, to read, kill
// or remove it. Directories that are gone are passed over. A directory that
// is not <cgroup file system>/…/caisson/<name>, nor …/caisson+<name>, is an error
// (ErrInvalid), so that a spoilt record cannot make caisson kill or remove
// anything else.
func Open(dirs []string) (*Group, error) {
	g := &Group{version: 2, dirs: make(map[string]string), k: realKernel()}
	for _, dir := range dirs {
		name, flat := groupName(dir), strings.HasPrefix(filepath.Base(dir), flatPrefix)
		bad := sandbox.Errorf(sandbox.ErrInvalid, "open cgroup", "%q is none of caisson's", dir)
		if name == "" || !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || (g.name != "" && g.name != name) {
			return nil, bad
		}
		g.name = name
		switch version := magic(dir); {
		case version == 0 && !exists(dir):
			continue
		case version == 0, version == 2 && flat:
			return nil, bad
		case version == 1:
			g.version = 1
		}
		for _, c := range controllersIn(dir, magic(dir)) {
			g.dirs[c] = dir
		}
	}
	return g, nil
}

// magic is the version of the cgroup file system that dir lies in, or 0.
func magic(dir string) int {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	switch st.Type {
	case unix.CGROUP_SUPER_MAGIC:
		return 1
	case unix.CGROUP2_SUPER_MAGIC:
		return 2
	}
	return 0
}

// controllersIn tells by its files which controllers a directory belongs to.
func controllersIn(dir string, version int) []string {
	if version == 2 {
		return []string{""}
	}
	var found []string
	for c, file := range map[string]string{
		Memory: "memory.limit_in_bytes", CPU: "cpu.shares", "cpuacct": "cpuacct.usage",
		Pids: "pids.max", "freezer": "freezer.state", IO: "blkio.reset_stats",
	} {
		if exists(filepath.Join(dir, file)) {
			found = append(found, c)
		}
	}
	return found
}

// FD opens the group for SysProcAttr.CgroupFD; the caller closes it. Version 1
// has no such thing (ErrUnsupported): use Start.
func (g *Group) FD() (*os.File, error) {
	if g.version != 2 {
		return nil, sandbox.Errorf(sandbox.ErrUnsupported, "open cgroup "+g.name, "cgroup v1 cannot start a process inside a group")
	}
	dirs := g.Dirs()
	if len(dirs) == 0 {
		return nil, sandbox.Errorf(sandbox.ErrNotFound, "open cgroup "+g.name, "it is gone")
	}
	return os.Open(dirs[0])
}

// enter moves the calling process into the group at dir. "0" is the writer
// itself, whatever PID namespace it lives in.
func (g *Group) enter(dir string) error {
	return g.k.write(filepath.Join(dir, "cgroup.procs"), "0")
}

// kernelName is the kernel's name of a controller that lives in dir, "" for
// version 2: what table.current wants.
func (g *Group) kernelName(dir string) string {
	for c, d := range g.dirs {
		if d == dir && c == IO {
			return "blkio"
		} else if d == dir {
			return c
		}
	}
	return ""
}

// Pids are the processes in the group and in groups below it. A group that is
// gone has none.
func (g *Group) Pids() ([]int, error) {
	var pids []int
	for _, dir := range g.Dirs() {
		for _, d := range tree(dir) {
			text, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			if err != nil && !gone(err) {
				return nil, g.fail("read", err)
			}
			pids = append(pids, parsePids(string(text))...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// gone reports the two answers for a group that was removed: no such file, and
// no such device for one that was open.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// tree is dir and the groups below it, children first.
func tree(dir string) []string {
	var dirs []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			dirs = append(dirs, tree(filepath.Join(dir, e.Name()))...)
		}
	}
	return append(dirs, dir)
}
