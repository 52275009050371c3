// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caisson-run/caisson/sandbox"
)

// The controllers that caisson uses, by the names of version 2.
const (
	Memory = "memory"
	CPU    = "cpu"
	Pids   = "pids"
	IO     = "io"
)

// v1Controllers are those of version 1 that are of use; the freezer serves
// Kill where pids is missing.
var v1Controllers = []string{"memory", "cpu", "cpuacct", "pids", "freezer", "blkio"}

// parentName is the group that holds all of caisson's on version 2, where it hands
// controllers down.
const parentName = "caisson"

// flatPrefix is before the name of a group on version 1, where none would be above
// it but to be made and removed again with each sandbox that is alone. No group's
// name has a '+', so that what begins like this is caisson's.
const flatPrefix = parentName + "+"

// LeafName is the group, beside those of sandboxes, that our own process moves to,
// or that the service manager puts it into.
const LeafName = "caisson-self"

// Host is the hierarchy in which this process may make groups. It does not
// change after Detect and may be used from many goroutines.
type Host struct {
	// Version is 1, 2, or 0 where no hierarchy is mounted.
	Version int
	// Why says why no group can be made at all; empty when one can.
	Why string
	// Remedy is the command or the act that mends Why.
	Remedy string
	// Notes are remarks on how limits hold here, one sentence each.
	Notes []string

	roots       []string          // where the hierarchies are mounted that have these controllers
	controllers map[string]string // controller, by v2's name → base directory
	extra       map[string]string // version 1: cpuacct, freezer → base directory
	evict       bool              // version 2: our process must leave the base for a leaf first
	inBase      bool              // version 2: that is where it was when it was looked
	where       string            // the groups that it was in then
	k           *kernel

	mu sync.Mutex // held while the base is being prepared
}

// Detect finds the hierarchy in which this process may make groups. It reads
// only and takes well under a millisecond. "There is none" is an answer
// (Host.Why), not an error.
func Detect() *Host {
	h := detect(realKernel())
	latest.Store(h)
	return h
}

// latest is what Detect has found last.
var latest atomic.Pointer[Host]

// Current is what Detect has found last, where this process is still in the groups
// that it was in then, and what it finds now elsewhere.
func Current() *Host {
	h := latest.Load()
	if h != nil && h.where == read(ownGroups) {
		return h
	}
	return Detect()
}

// ownGroups says which groups this process is in.
const ownGroups = "/proc/self/cgroup"

func detect(k *kernel) *Host {
	h := &Host{k: k, controllers: make(map[string]string), extra: make(map[string]string)}
	t := k.table()
	h.where = t.where
	m, has2 := t.mount("")
	has1 := slices.ContainsFunc(t.mounts, func(m mount) bool { return len(m.controllers) > 0 })
	// On a hybrid host version 2 is mounted too, but the controllers sit on
	// version 1: the version that has them decides.
	switch {
	case has2 && (!has1 || hasAny(read(filepath.Join(m.point, "cgroup.controllers")))):
		h.Version, h.roots = 2, []string{m.point}
		h.detect2(t, m)
	case has1:
		h.Version = 1
		h.detect1(t)
	default:
		h.Why = "no cgroup hierarchy is mounted"
		h.Remedy = "mount -t cgroup2 none /sys/fs/cgroup"
	}
	return h
}

func hasAny(controllers string) bool {
	return slices.ContainsFunc(strings.Fields(controllers), func(c string) bool {
		return c == Memory || c == CPU || c == Pids
	})
}

// Can reports whether groups can have a controller (Memory, CPU, Pids, IO),
// and if not, why.
func (h *Host) Can(controller string) (bool, string) {
	if h.controllers[controller] != "" {
		return true, ""
	}
	if h.Why != "" {
		return false, h.Why
	}
	return false, fmt.Sprintf("the %s controller of cgroup v%d is not available here", controller, h.Version)
}

// Base is the directory below which groups with a controller are made, or "".
func (h *Host) Base(controller string) string { return h.controllers[controller] }

// Clause says how a limit that rests on a controller holds here.
func (h *Host) Clause(controller string) sandbox.Clause {
	ok, why := h.Can(controller)
	switch {
	case !ok:
		return sandbox.Clause{Enforcement: sandbox.Off, Detail: why, Remedy: h.remedy(controller)}
	case controller == IO && h.Version == 1:
		return sandbox.Clause{Enforcement: sandbox.Emulated, Detail: "cgroup v1 slows reads and direct writes; buffered writes pass"}
	default:
		return sandbox.Clause{Enforcement: sandbox.Enforced, Detail: fmt.Sprintf("cgroup v%d", h.Version)}
	}
}

// remedy is what brings one missing controller.
func (h *Host) remedy(controller string) string {
	switch {
	case h.Why != "" || h.Version != 2 || h.k == nil: // nil: made by hand, in a test
		return h.Remedy
	case h.k.euid != 0:
		// systemd's user manager hands out cpu, memory and pids only.
		return "as root: mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' > /etc/systemd/system/user@.service.d/delegate.conf && systemctl daemon-reload, then log in again"
	case controller == Memory:
		return "boot with cgroup_enable=memory"
	default:
		return ""
	}
}

// detect1 looks for version 1 bases, one for each controller.
func (h *Host) detect1(t table) {
	var refused []string
	for _, c := range v1Controllers {
		m, ok := t.mount(c)
		if !ok {
			continue
		}
		if !slices.Contains(h.roots, m.point) {
			h.roots = append(h.roots, m.point)
		}
		base := h.base1(t, m, c)
		switch name := v2Name(c); {
		case base == "":
			refused = append(refused, c)
		case name != "":
			h.controllers[name] = base
		default:
			h.extra[c] = base
		}
	}
	if len(h.controllers) == 0 && len(refused) > 0 {
		h.Why = "only root may make groups in cgroup v1"
		h.Remedy = "run as root, or boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2"
		if h.k.euid == 0 {
			h.Why = "cgroup v1 is mounted read-only here (" + strings.Join(refused, ", ") + ")"
			h.Remedy = "in a container, start it with --privileged or with /sys/fs/cgroup mounted rw"
		}
	}
	if base := h.controllers[Memory]; base != "" && !exists(filepath.Join(base, "memory.memsw.limit_in_bytes")) {
		h.Notes = append(h.Notes, "The kernel does not account swap (boot with swapaccount=1): groups use memory.swappiness=0 instead of a swap limit.")
	}
	if h.controllers[IO] != "" {
		h.Notes = append(h.Notes, "cgroup v1 limits the I/O of reads and direct writes; buffered writes are written back outside the group.")
	}
}

// base1 is our own group of a controller, unless systemd manages it, else the
// top of what is mounted.
func (h *Host) base1(t table, m mount, controller string) string {
	if own, ok := t.current(controller); ok && !isUnit(own) && h.k.writable(own) {
		return own
	}
	if h.k.writable(m.point) {
		return m.point
	}
	return ""
}

// v2Name is version 2's name of a version 1 controller, or "" where version 2
// has none.
func v2Name(controller string) string {
	switch controller {
	case "memory", "cpu", "pids":
		return controller
	case "blkio":
		return IO
	}
	return ""
}

// isUnit reports whether a group lies in a unit of systemd.
func isUnit(dir string) bool {
	for part := range strings.SplitSeq(dir, "/") {
		if hasUnitSuffix(part) {
			return true
		}
	}
	return false
}

func hasUnitSuffix(name string) bool {
	return strings.HasSuffix(name, ".slice") || strings.HasSuffix(name, ".scope") || strings.HasSuffix(name, ".service")
}

// Returns says why a service could not be started again while groups that it made
// are still there, and what mends that; empty where it can. On version 2 a group that
// hands controllers down takes no process (cgroup-v2(7), no internal processes), and
// that is where the service manager would put the next one, unless it has been told to
// put it into a group below (DelegateSubgroup=, systemd 254).
func (h *Host) Returns() (why, remedy string) {
	if h.Version != 2 || !h.inBase {
		return "", ""
	}
	for _, base := range h.controllers {
		if filepath.Ext(base) == ".service" {
			return "systemd could not start " + filepath.Base(base) + " again while sandboxes of it run",
				"say DelegateSubgroup=" + LeafName + " in its unit, which takes systemd 254, or have a unit for sandboxes beside it (serve --sandboxes-in)"
		}
	}
	return "", ""
}
