// SPDX-License-Identifier: Apache-2.0

//go:build lean

package cli

import (
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/internal/config"
	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
	"github.com/caisson-run/caisson/internal/linux/whole"
	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// This file stands for commands.go in the program that is for `caisson run` alone
// (cmd/caisson-run). Package begin has guessed that it is the right one.

func (a *app) commands() []*cobra.Command { return []*cobra.Command{a.runCommand()} }

func probed([]string) (code int, inside bool) { return 0, false }

// someLevels says that the drivers are not those of all levels: none of containers.
const someLevels = true

// elsewhere has the whole program carry out what this one has no packages for: images,
// policies that are not plain, the agent inside, other levels. So it has what would have
// to be unpacked first: package begin has looked for that, but knows no flags, and took an
// argument of the program's, or a flag's, for one of caisson's. And it has what a dead
// owner left. It returns only where that is not so, or with an error. Nothing has been
// done yet, and standard input not been read.
func (a *app) elsewhere(f *runFlags) error {
	defer runtime.UnlockOSThread() // package begin has locked it, for whole.Exec
	state := store.Place(a.place())
	dead := store.Dead(state) // to sweep takes all levels
	if !dead && audit.Appendable(state) && f.image == "" && !f.tty && len(f.collect) == 0 && a.makes(f.isolation) {
		if p := a.plainPolicy(state, f); p != nil {
			a.policy = p
			return nil
		}
	}
	return &sandbox.Error{Op: "run", Kind: sandbox.ErrUnavailable, Problem: "the rest of caisson's program cannot be executed",
		Hint: "mount /proc", Cause: whole.Exec()}
}

// makes says whether this program has a level; nobody has to name one.
func (a *app) makes(level string) bool { return level == "" || a.drivers()[level] != nil }

// plainPolicy reads the policies, the system's and the one that is named, for good. It is
// nil where one cannot be read, which the whole program says better, is a pipe, which
// can be read once, or is not plain, and where they want what is not kept.
func (a *app) plainPolicy(state string, f *runFlags) *policy.Policy {
	var o policy.Options
	var err error
	if o.System, err = config.System(config.SystemPath); err != nil {
		return nil
	}
	if f.policy != "" {
		if info, err := os.Stat(f.policy); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if o.File, err = config.File(f.policy); err != nil {
			return nil
		}
	}
	if !a.plain(o.System) || !a.plain(o.File) || !kept(state, f, o.File, o.System) {
		return nil
	}
	p, err := policy.New(o)
	if err != nil {
		return nil
	}
	return p
}

// plain says that a policy file leads to nothing that this program lacks: its level is
// here, and it has no image, files to collect, tools, rules about code and risk, or
// commands that somebody is asked about: what is waited for and counted is in a database.
func (a *app) plain(f *policy.File) bool {
	none := policy.Pos{}
	return f == nil || a.makes(f.Isolation.V) && f.Image.V == "" && len(f.Files.Collect) == 0 && len(f.Servers) == 0 && len(f.Commands.Ask) == 0 &&
		f.Code.At == none && f.Tools.At == none && f.Risk.At == none && f.Approvals.At == none
}

// kept says that the programs around the sandbox lie on the shelf. The default level is
// one of them; the process level has none but the router. Of policies the first that
// names a level is asked.
func kept(state string, f *runFlags, policies ...*policy.File) bool {
	level, network := f.isolation, len(f.allow) > 0
	for _, p := range policies {
		if p == nil {
			continue
		}
		if level == "" {
			level = p.Isolation.V
		}
		network = network || len(p.Network.Allow) > 0 || len(p.Network.Web) > 0
	}
	return shelf.Has(state, level == "" || level == policy.DefaultIsolation, network)
}
