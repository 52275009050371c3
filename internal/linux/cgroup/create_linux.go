// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// Limits bound a group. 0 is "no limit of this kind".
type Limits struct {
	Memory  int64    // bytes, swap off
	CPUs    float64  // share of processors: 0.5 is half of one; at least 0.001
	Pids    int      // processes and threads
	IO      int64    // bytes per second, each direction, each of Devices
	IOPS    int64    // operations per second, each direction, each of Devices
	Devices []Device // where IO and IOPS hold; see BlockDevice
}

// attempts is how often Create starts over when a neighbour that left removed
// the shared parent under its feet.
const attempts = 50

// Create makes the group <base>/caisson/<name>, on version 1 <base>/caisson+<name>, with
// its limits. The name
// begins with "caisson" and is one path element of letters, digits, '-', '_'
// and '.'.
//
// A limit that cannot be set is an error (sandbox.ErrUnsupported), and nothing
// is left behind then. On version 2 the first call may move this process into
// a leaf of a group that was delegated to it.
func (h *Host) Create(name string, limits Limits) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if h.Why != "" {
		return nil, &sandbox.Error{Op: "create cgroup " + name, Kind: sandbox.ErrUnsupported, Problem: h.Why, Hint: h.Remedy}
	}
	if err := h.check(limits); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for range attempts {
		var g *Group
		if g, err = h.tryCreate(name, limits); err == nil {
			return g, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

func (h *Host) tryCreate(name string, limits Limits) (*Group, error) {
	g := &Group{name: name, version: h.Version, dirs: make(map[string]string), k: h.k, period: defaultPeriod}
	for controller, base := range h.bases(limits) {
		g.dirs[controller] = h.place(base, name)
	}
	var made []string
	err := func() error {
		var refused error
		for _, dir := range g.Dirs() {
			if h.Version == 2 {
				var err error
				if refused, err = h.makeParent(filepath.Dir(dir), limits); err != nil {
					return err
				}
			}
			if err := h.k.mkdir(dir); err != nil {
				return createError(name, err)
			}
			made = append(made, dir)
		}
		return g.limit(limits, refused)
	}()
	if err == nil {
		return g, nil
	}
	for _, dir := range made {
		err = errors.Join(err, h.k.rmdir(dir))
	}
	g.removeParent()
	return nil, err
}

// wanted are the controllers that a group with these limits uses: everything
// that is there, for the sake of accounting, but I/O only on demand.
func (h *Host) wanted(limits Limits) []string {
	var names []string
	for c := range h.controllers {
		if c != IO || limits.IO > 0 || limits.IOPS > 0 {
			names = append(names, c)
		}
	}
	return names
}

// bases are the base directories of the wanted controllers, as Group.dirs.
// The freezer is for Kill where pids is missing.
func (h *Host) bases(limits Limits) map[string]string {
	bases := make(map[string]string)
	for _, c := range h.wanted(limits) {
		if h.Version == 2 {
			bases[""] = h.controllers[c]
		} else {
			bases[c] = h.controllers[c]
		}
	}
	if cpuacct := h.extra["cpuacct"]; cpuacct != "" {
		bases["cpuacct"] = cpuacct
	}
	if freezer := h.extra["freezer"]; freezer != "" && bases[Pids] == "" {
		bases["freezer"] = freezer
	}
	return bases
}

// place is where a group of this name is below a base.
func (h *Host) place(base, name string) string {
	if h.Version == 2 {
		return filepath.Join(base, parentName, name)
	}
	return filepath.Join(base, flatPrefix+name)
}

// makeParent makes the "caisson" group, hands the controllers down to it and
// through it, and returns which of them the kernel refused.
func (h *Host) makeParent(parent string, limits Limits) (refused, err error) {
	base := filepath.Dir(parent)
	if err := h.leaveBase(base); err != nil {
		return nil, err
	}
	refused = h.handDown(base, limits)
	if err := h.k.mkdir(parent); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, createError(parentName, err)
	}
	return errors.Join(refused, h.handDown(parent, limits)), nil
}

// leaveBase moves our own process from a delegated base into a leaf, and with it
// whatever it has started there since Detect saw that it was alone.
func (h *Host) leaveBase(base string) error {
	if !h.evict {
		return nil
	}
	leaf := filepath.Join(base, LeafName)
	if err := h.k.mkdir(leaf); err != nil && !errors.Is(err, fs.ErrExist) {
		return createError(LeafName, err)
	}
	procs := filepath.Join(leaf, "cgroup.procs")
	if err := h.k.write(procs, "0"); err != nil {
		return createError(LeafName, err)
	}
	for range 10 { // one of them may have had a child meanwhile
		rest := parsePids(read(filepath.Join(base, "cgroup.procs")))
		if len(rest) == 0 {
			break
		}
		for _, pid := range rest {
			_ = h.k.write(procs, strconv.Itoa(pid)) // it may have ended; else handing down says so
		}
	}
	h.evict = false
	return nil
}

// handDown enables controllers for the children of dir, one by one: a refusal
// of one must not cost the others, nor a group that does without it.
func (h *Host) handDown(dir string, limits Limits) error {
	var refused []error
	offered := strings.Fields(read(filepath.Join(dir, "cgroup.controllers")))
	enabled := strings.Fields(read(filepath.Join(dir, "cgroup.subtree_control")))
	for _, c := range h.wanted(limits) {
		if slices.Contains(enabled, c) || !slices.Contains(offered, c) {
			continue
		}
		err := h.k.write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone again: Create starts over
			refused = append(refused, fmt.Errorf("+%s: %w", c, err))
		}
	}
	return errors.Join(refused...)
}

// check refuses limits that mean nothing or that have no controller here.
func (h *Host) check(l Limits) error {
	if l.Memory < 0 || l.CPUs < 0 || l.CPUs != l.CPUs || l.Pids < 0 || l.IO < 0 || l.IOPS < 0 || (l.CPUs > 0 && l.CPUs < minCPUs) {
		return &sandbox.Error{Op: "create cgroup", Kind: sandbox.ErrInvalid, Problem: "a limit is negative or too small", Hint: "cpus starts at 0.001, everything else at 1"}
	}
	for _, need := range []struct {
		controller string
		asked      bool
	}{{Memory, l.Memory > 0}, {CPU, l.CPUs > 0}, {Pids, l.Pids > 0}, {IO, l.IO > 0 || l.IOPS > 0}} {
		if ok, why := h.Can(need.controller); need.asked && !ok {
			return &sandbox.Error{Op: "limit " + need.controller, Kind: sandbox.ErrUnsupported, Problem: why, Hint: h.remedy(need.controller)}
		}
	}
	if (l.IO > 0 || l.IOPS > 0) && len(l.Devices) == 0 {
		return &sandbox.Error{Op: "limit io", Kind: sandbox.ErrUnsupported, Problem: "there is no block device whose I/O could be limited", Hint: "use a state directory on a disk"}
	}
	return nil
}

const maxName = 200 // bytes after parentName

// checkName refuses everything but caisson[A-Za-z0-9_.-]*. A pattern would
// have to be compiled, in two processes for every sandbox: 0.3 ms in each.
func checkName(name string) error {
	rest, ok := strings.CutPrefix(name, parentName)
	strange := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-'
	}
	if !ok || len(rest) > maxName || strings.ContainsFunc(rest, strange) {
		return sandbox.Errorf(sandbox.ErrInvalid, "create cgroup", "%q is not a name for one: it must begin with %q and be one path element", name, parentName)
	}
	return nil
}

// createError names the usual causes of a failed mkdir.
func createError(name string, err error) error {
	e := &sandbox.Error{Op: "create cgroup " + name, Kind: sandbox.ErrUnavailable, Problem: "the kernel refused it", Cause: err}
	switch {
	case errors.Is(err, os.ErrExist):
		e.Kind, e.Problem = sandbox.ErrConflict, "it exists already"
	case errors.Is(err, os.ErrPermission), errors.Is(err, unix.EROFS):
		e.Kind, e.Problem = sandbox.ErrUnsupported, "no cgroup was delegated to this user"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOSPC):
		e.Problem, e.Hint = "too many cgroups", "end other sandboxes, or raise cgroup.max.descendants"
	}
	return e
}
