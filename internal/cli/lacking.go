// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// acceptEnv names default limits that are known not to hold here, and how they do:
// cpus=off,memory=emulated. It is about what is said alone: a limit that is asked for
// holds, or refuses the run. What gets worse than it says is said again.
const acceptEnv = "CAISSON_ACCEPT"

// accepted reads the variable.
func accepted() (map[sandbox.LimitName]sandbox.Enforcement, error) {
	known := map[sandbox.LimitName]sandbox.Enforcement{}
	for word := range strings.SplitSeq(os.Getenv(acceptEnv), ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		name, how, _ := strings.Cut(word, "=")
		limit, as := sandbox.LimitName(name), sandbox.Enforcement(how)
		if !slices.Contains(sandbox.LimitNames(), limit) || as != sandbox.Off && as != sandbox.Emulated {
			return nil, &sandbox.Error{Op: acceptEnv, Kind: sandbox.ErrInvalid, Problem: sandbox.Quoted(word) + " is no limit and how it holds",
				Hint: "write LIMIT=off or LIMIT=emulated, with a comma between two: cpus=off,memory=emulated"}
		}
		known[limit] = as
	}
	return known, nil
}

// lacking tells which default limits do not hold here, in one line, with what is to be
// set to hear no more of it.
func (a *app) lacking(known map[sandbox.LimitName]sandbox.Enforcement) func(session.Lacking) {
	return func(l session.Lacking) {
		var words []string
		news := false
		for _, h := range l.Limits {
			words = append(words, string(h.Limit)+"="+string(h.How))
			as := known[h.Limit]
			news = news || as != h.How && as != sandbox.Off
		}
		if news {
			a.note("%s (to hear no more of it: export %s=%s)", l, acceptEnv, strings.Join(words, ","))
		}
	}
}
