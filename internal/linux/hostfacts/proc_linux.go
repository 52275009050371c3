// SPDX-License-Identifier: Apache-2.0

package hostfacts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/linux/mounts"
)

// proc says whether /proc is there.
func (m *machine) proc() Fact {
	if m.exists("/proc/self/exe") {
		return Fact{OK: true}
	}
	return Fact{Why: "/proc is not mounted", Remedy: "as root: mount -t proc proc /proc"}
}

// newProc says whether a sandbox of the host's kernel can have a /proc of its own. In a
// user namespace the kernel refuses to mount one where the one that is there has things
// mounted over it, as container engines do: they would be seen again
// (mount_too_revealing).
func (m *machine) newProc(f Facts) Fact {
	b, err := os.ReadFile(filepath.Join(m.root, "/proc/self/mountinfo"))
	if err != nil {
		return Fact{OK: true} // not known
	}
	over := covered(string(b))
	if len(over) == 0 {
		return Fact{OK: true}
	}
	why := "parts of /proc are covered (" + strings.Join(over[:min(len(over), 3)], ", ") + "), and so the kernel lets no sandbox mount one of its own"
	switch f.Container {
	case "docker":
		return Fact{Why: why, Remedy: "start the container with --security-opt systempaths=unconfined"}
	case "podman":
		return Fact{Why: why, Remedy: "start the container with --security-opt unmask=ALL"}
	case "kubernetes":
		return Fact{Why: why, Remedy: "set securityContext.procMount: Unmasked in the pod"}
	}
	return Fact{Why: why, Remedy: "start caisson where nothing is mounted below /proc"}
}

// empty are directories of /proc that are there for a mount and never show anything,
// which the kernel minds as little.
var empty = []string{"/sys/fs/binfmt_misc", "/fs/nfsd"}

// covered is what lies over the /proc over which the least does; of one alone nothing may.
func covered(table string) (least []string) {
	var whole, points []string
	for line := range strings.Lines(table) {
		if one, ok := mounts.Parse(line); ok {
			points = append(points, one.Point)
			if one.Type == "proc" && one.Root == "/" {
				whole = append(whole, one.Point)
			}
		}
	}
	for i, at := range whole {
		var over []string
		for _, p := range points {
			if rel, ok := strings.CutPrefix(p, at); ok && strings.HasPrefix(rel, "/") && !slices.Contains(empty, rel) {
				over = append(over, p)
			}
		}
		if i == 0 || len(over) < len(least) {
			least = over
		}
	}
	return least
}
