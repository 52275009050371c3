// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"path/filepath"
	"slices"
	"strings"
)

// ScopePrefix begins the names of the transient scopes that caisson asks
// systemd for. A scope so named is known to be delegated even where systemd
// is too old to mark it (user.delegate came with 251).
const ScopePrefix = "caisson-"

// detect2 walks from our own group upwards to the first one that was handed to
// us and gives controllers.
func (h *Host) detect2(t table, m mount) {
	own, visible := t.current("")
	if !visible {
		own = m.point
	}
	for i, dir := range h.candidates(own, m.point) {
		evict, refused := h.usable(dir, m.point)
		if refused.why == "" {
			h.Why, h.Remedy = "", ""
			h.take(dir, evict)
			return
		}
		// What speaks of our own group helps a user most; for root the last
		// chance, the top, is what counts.
		if i == 0 || h.k.euid == 0 {
			h.Why, h.Remedy = refused.why, refused.remedy
		}
	}
}

// candidates are the groups that may be ours, nearest first. What lies above a
// unit that was not delegated belongs to systemd; root alone may go on, to the
// top.
func (h *Host) candidates(own, top string) []string {
	var dirs []string
	for dir := own; dir != top; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == LeafName {
			continue // the base is its parent
		}
		dirs = append(dirs, dir)
		if hasUnitSuffix(filepath.Base(dir)) && !h.delegatedUnit(dir) {
			if h.k.euid != 0 {
				return dirs
			}
			break
		}
	}
	return append(dirs, top)
}

// refusal is why a group cannot be the base, and what would mend it.
type refusal struct{ why, remedy string }

// take makes dir the base, with whatever controllers it offers.
func (h *Host) take(dir string, evict bool) {
	h.evict, h.inBase = evict, evict
	offered := strings.Fields(read(filepath.Join(dir, "cgroup.controllers")))
	for _, c := range []string{Memory, CPU, Pids, IO} {
		if slices.Contains(offered, c) {
			h.controllers[c] = dir
		}
	}
}

// usable reports whether groups may be made below dir, and whether our own
// process has to leave it for a leaf first; otherwise why not.
func (h *Host) usable(dir, top string) (evict bool, no refusal) {
	const ownScope = "systemd-run --user --scope -p Delegate=yes caisson …"
	k, name := h.k, h.k.show(dir)
	writable := k.writable(dir) && k.writable(filepath.Join(dir, "cgroup.subtree_control")) && k.writable(filepath.Join(dir, "cgroup.procs"))
	switch {
	case !writable && k.euid == 0:
		return false, refusal{name + " is mounted read-only", "in a container, start it with --privileged or with /sys/fs/cgroup mounted rw"}
	case !writable:
		return false, refusal{"no cgroup was delegated to this user: " + name + " is not writable", ownScope}
	case hasUnitSuffix(filepath.Base(dir)) && !h.delegatedUnit(dir):
		return false, refusal{name + " is managed by systemd and not delegated", ownScope}
	case !hasAny(read(filepath.Join(dir, "cgroup.controllers"))):
		return false, refusal{name + " was handed down without the memory, cpu and pids controllers", "enable them in the cgroup.subtree_control of its parent"}
	}
	// The true top alone may hold processes beside its children; it has no
	// cgroup.type.
	if dir == top && !exists(filepath.Join(dir, "cgroup.type")) {
		return false, refusal{}
	}
	// Root can write anywhere. Only a group that is marked as delegated, or
	// the top of a container's own namespace, is meant for us.
	if k.euid == 0 && dir != top && !h.delegatedUnit(dir) {
		return false, refusal{name + " was not delegated", ownScope}
	}
	pids := parsePids(read(filepath.Join(dir, "cgroup.procs")))
	if slices.ContainsFunc(pids, func(pid int) bool { return pid != k.pid }) {
		remedy := "start caisson in a group of its own: " + ownScope
		if dir == top {
			remedy = "make caisson the container's first process, or move the others into a group below " + name
		}
		return false, refusal{"other processes live in " + name + ", so it cannot hand controllers down", remedy}
	}
	return len(pids) > 0, refusal{}
}

// delegatedUnit reports whether systemd marked a group as delegated, or we
// asked for it as such.
func (h *Host) delegatedUnit(dir string) bool {
	name := filepath.Base(dir)
	if strings.HasPrefix(name, ScopePrefix) && strings.HasSuffix(name, ".scope") {
		return true
	}
	// user.delegate is readable by all, trusted.delegate by root
	// (https://systemd.io/CGROUP_DELEGATION).
	return h.k.xattr(dir, "user.delegate") == "1" || h.k.xattr(dir, "trusted.delegate") == "1"
}

// show is a path as the host knows it.
func (k *kernel) show(dir string) string { return strings.TrimPrefix(dir, k.root) }
