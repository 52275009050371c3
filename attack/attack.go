// SPDX-License-Identifier: Apache-2.0

// Package attack is the escape suite behind `caisson attack`: it goes at the
// user's own installation, on the user's own host and level, the way code in a
// sandbox would.
//
// Each case plants something outside (a file, a process, a socket, a key), runs
// the attack in a sandbox that is made by the one road (package session), and
// looks at what came of it from outside: whether a canary came out or was
// changed, and what the sandbox's processes are and hold, as the host's kernel
// shows them. What the attack says of itself never makes a case pass. It can
// make one fail, on levels where the host sees the attacking process itself:
// then the kernel that answered is the host's.
//
// The attacks do no harm where they succeed: what is opened is held and not
// written to, what is exhausted has a bound, and what is changed is a canary.
//
// A case must be able to fail: attack_test.go runs the suite against levels
// with one protection out, and the right cases turn red.
package attack

import (
	"context"
	"os/exec"
	"slices"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Verdict is what came of one case.
type Verdict string

// The verdicts.
const (
	Pass          Verdict = "pass"
	Breach        Verdict = "breach"
	NotApplicable Verdict = "not applicable" // the attack cannot be tried on this host or level
	Unclear       Verdict = "unclear"        // the attack did not run to its end, so that nothing was shown
)

// Case is one attack.
type Case struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Mend  string `json:"-"` // what to do about a breach
}

// Finding is a case and what came of it.
type Finding struct {
	Case
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"` // what was seen, or why the case is not applicable
	Mend    string  `json:"mend,omitempty"`   // what mends it
	Tried   int     `json:"tried,omitempty"`  // attempts that were made inside
}

// Report is what came of a run of the suite.
type Report struct {
	Isolation string        `json:"isolation"`
	Began     time.Time     `json:"began"`
	Took      time.Duration `json:"-"`
	TookMS    int64         `json:"took_ms"`
	Cases     []Finding     `json:"cases"`
}

// Count is how many cases have a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, f := range r.Cases {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

// Doer carries calls out: *session.Session.
type Doer interface {
	Do(ctx context.Context, call *session.Call, io session.IO) (*sandbox.Result, error)
}

// Options say what is attacked. The first four are required.
type Options struct {
	Session   Doer
	Isolation string // the level
	State     string // caisson's state directory, which is searched for secrets
	// Program is the program whose first argument probe.Word makes it a probe:
	// the caisson binary. It must be static.
	Program string
	// Again starts another caisson on the same level with these arguments; it
	// is killed in the middle of a run. Nil leaves that case out.
	Again func(args ...string) *exec.Cmd
	// Open opens an Office on the level. Nil leaves out the cases about the policy.
	Open func(context.Context, OfficeOptions) (*Office, error)
	// Unpack makes a tree below dir of an image that docker save wrote; the image
	// store does when it is nil. Tests put a careless one here.
	Unpack func(ctx context.Context, archive, dir string) error
	// Lend, when set, has what a level needs of one state directory in another: second
	// caissons have state directories of their own.
	Lend func(from, to string) error
	// Copies says that the level has no read-write mounts: what code gets of the host's
	// files are copies.
	Copies bool
	// Only are the cases to run, by ID; empty is all.
	Only []string
	// OnFinding, when set, is called with each finding as it comes.
	OnFinding func(Finding)
}

func (o *Options) wants(ids ...string) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(o.Only, id) })
}

// Find returns the case with the given ID.
func Find(id string) (Case, bool) {
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.ID == id })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}

// sort puts the findings into the order of Cases.
func (r *Report) sort() {
	all := Cases()
	place := func(f Finding) int { return slices.IndexFunc(all, func(c Case) bool { return c.ID == f.ID }) }
	slices.SortStableFunc(r.Cases, func(a, b Finding) int { return place(a) - place(b) })
}
