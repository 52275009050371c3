// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inside says whether a process belongs to the sandbox, and not to those of
// caisson that keep it.
func (e *evidence) inside(p *process) bool {
	for _, ns := range []string{"pid", "user"} {
		if own, _ := os.Readlink("/proc/self/ns/" + ns); p.namespaces[ns] != own {
			return true
		}
	}
	return p.argvHas(e.nonce)
}

// insiders are the processes inside, at the end of the attempts.
func (e *evidence) insiders() []*process {
	var all []*process
	for _, p := range e.ready {
		if e.inside(p) {
			all = append(all, p)
		}
	}
	return all
}

func (e *evidence) newUserNamespace() string {
	before := map[string]bool{}
	for _, p := range e.start {
		before[p.namespaces["user"]] = true
	}
	for _, p := range e.insiders() {
		if !before[p.namespaces["user"]] {
			return fmt.Sprintf("%s is in a user namespace of its own making", p)
		}
	}
	return ""
}

// pooled finds files of huge pages, and processes with more filters than before.
func (e *evidence) pooled() string {
	if why := seeDescriptor(func(d descriptor) bool { return d.system == unix.HUGETLBFS_MAGIC })(e); why != "" {
		return why
	}
	filters := func(p *process) int {
		n, _ := strconv.Atoi(p.status["Seccomp_filters"]) // Linux 5.9
		return n
	}
	for _, p := range e.insiders() {
		for _, q := range e.start {
			if p.argvHas(e.nonce) && q.argvHas(e.nonce) && e.shared && filters(p) > filters(q) {
				return fmt.Sprintf("%s has %d filters instead of %d", p, filters(p), filters(q))
			}
		}
	}
	return ""
}

// siblings finds processes that were made inside, and whose parent is outside.
func (e *evidence) siblings() string {
	inside := map[int]bool{}
	for _, p := range e.insiders() {
		inside[p.pid] = true
	}
	for _, p := range e.insiders() {
		was := slices.ContainsFunc(e.start, p.same)
		if !was && !inside[p.parent] && p.argvHas(e.nonce) {
			return fmt.Sprintf("%s was made inside, and is a child of process %d, outside", p, p.parent)
		}
	}
	return ""
}

func (e *evidence) otherPersonality() string {
	for _, p := range e.insiders() {
		const noRandomize = 0x0040000
		var is int
		if _, err := fmt.Sscanf(p.personality, "%x", &is); err == nil && is&noRandomize != 0 && p.argvHas(e.nonce) {
			return fmt.Sprintf("%s runs without address randomization", p)
		}
	}
	return ""
}

func (e *evidence) becameRoot() string {
	for _, t := range e.out.Of("K14") {
		if t.Got {
			return "the program ran as root"
		}
	}
	return ""
}

// environments looks for the canary in those of all processes, the keepers'
// included.
func (e *evidence) environments() string {
	for _, p := range e.ready {
		if bytes.Contains(p.environ, []byte(e.token("S02"))) {
			return fmt.Sprintf("%s has caisson's environment", p)
		}
	}
	return ""
}

func (e *evidence) connected() string {
	for _, t := range e.out.Of("S08") {
		if t.Got && strings.HasPrefix(t.What, "connect") {
			return t.What + ": it answered"
		}
	}
	return ""
}
