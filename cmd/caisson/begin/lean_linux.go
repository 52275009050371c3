// SPDX-License-Identifier: Apache-2.0

//go:build lean

package begin

import (
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
	"github.com/caisson-run/caisson/internal/linux/whole"
)

// here says whether this program carries the command line out; if not, the whole one
// does, and this returns only where that cannot be started. It is better to guess a
// no too many than a yes: what is guessed wrong then, package cli sees, later.
func here(args []string, g guess) bool {
	if whole.Marked() || !g.unsure && fits(args) && ready(g, g.place()) {
		runtime.LockOSThread() // until package cli has decided; see whole.Exec
		return true
	}
	_ = whole.Exec()
	return false // package cli tries it again, and says why
}

// fits says that nothing in a command line is for the other program.
func fits(args []string) bool {
	for _, a := range args[min(2, len(args)):] {
		name, _, _ := strings.Cut(a, "=")
		switch {
		case a == "--":
			return true
		case name == "--image", name == "--collect", name == "--tty", name == "--help":
			return false
		case len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.ContainsAny(a, "th"): // -t, -it, -h
			return false
		}
	}
	return true
}

// ready says that what would be unpacked lies on the shelf in that state directory, and
// that caisson's file was looked after since the kernel was started (engine.InPieces).
func ready(g guess, state string) bool {
	if g.level != "gvisor" && g.level != "process" || !shelf.LookedAfter(state) {
		return false
	}
	if unix.Access(state+"/run", unix.W_OK) != nil { // another directory will be taken
		return false
	}
	return shelf.Has(state, g.level == "gvisor", g.network)
}
