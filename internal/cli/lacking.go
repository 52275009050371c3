// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/internal/files"
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

// toldFile is the file of the state directory that has the limits which were told last.
const toldFile = "limits-told"

// lacking tells which default limits do not hold here, in one line, once for a state
// directory and again when there are others.
func (a *app) lacking(state string, known map[sandbox.LimitName]sandbox.Enforcement, l session.Lacking) {
	var words, names []string
	news := false
	for _, h := range l.Limits {
		words = append(words, string(h.Limit)+"="+string(h.How))
		names = append(names, string(h.Limit)+" is "+string(h.How))
		as := known[h.Limit]
		news = news || as != h.How && as != sandbox.Off
	}
	told, file := strings.Join(words, ",")+"\n", filepath.Join(state, toldFile)
	if !news {
		return
	}
	if before, err := files.ReadRegular(file, 1<<10); err == nil && string(before) == told {
		return
	}
	// Where it cannot be written it is told again.
	_ = os.WriteFile(file, []byte(told), 0o600)
	a.note("default limits here: %s (caisson doctor says why)", strings.Join(names, ", "))
}
