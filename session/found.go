// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
)

// WatchKept ends a program when a kept name is replaced. The caller calls stop.
func WatchKept(k environment.Kept, end context.CancelCauseFunc) (stop func()) {
	return k.Watch(func(name string) { end(lostName(name)) })
}

// lostName is the ending of a program that could write beside a name that is another
// file's now.
func lostName(name string) *Ending {
	return &Ending{Status: sandbox.StatusError, Rule: environment.RuleHostRuns,
		Reason: fmt.Sprintf("%s was replaced on the host while the program could write beside it", sandbox.Quoted(name))}
}

// tellLost says in the result what the program may have changed.
func tellLost(k environment.Kept, res *sandbox.Result) {
	name := k.Lost()
	if name == "" {
		return
	}
	if e := lostName(name); res.Resource == "" {
		res.Status, res.Rule, res.Reason = e.Status, e.Rule, e.Reason
	}
	res.Hint = "look at what is in it before you run git or an editor there; change such files when no sandbox can write to the directory"
}

// maxPlain is how many new repositories are named that nothing speaks against.
const maxPlain = 5

// tellFound adds what was found to a result, and says what is none. Where there is no
// result it is said, too.
func tellFound(found *environment.Found, res *sandbox.Result, notice func(string)) {
	for i, s := range found.Plain {
		if i == maxPlain {
			s = "more new repositories, whose configuration makes git run nothing"
		}
		if i <= maxPlain {
			notice(s)
		}
	}
	if res == nil {
		for _, f := range found.Findings {
			notice("finding: " + sandbox.Quoted(f.Text) + ": " + f.Problem)
		}
		return
	}
	res.Findings = append(res.Findings, found.Findings...)
}
