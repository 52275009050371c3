// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// exitCode is caisson's exit code for a result.
func exitCode(r *sandbox.Result) int {
	switch r.Status {
	case sandbox.StatusTimeout:
		return exitTimeout
	case sandbox.StatusResourceExceeded:
		return exitLimit
	case sandbox.StatusDenied:
		return exitDenied
	}
	if r.Signal != "" {
		return 128 + signalNumber(r.Signal)
	}
	if r.ExitCode == nil || *r.ExitCode == 0 && (len(r.Uncollected) > 0 || slices.ContainsFunc(r.Findings, toInspect)) {
		return exitCannot // what was asked for is not all there, or something else is
	}
	return *r.ExitCode
}

// failedCode is caisson's exit code for what did not come to a result. Refused is what
// a rule refuses, as session has it; that caisson cannot trust the place where it keeps
// its records says nothing of what was asked for.
func failedCode(err error) int {
	for _, one := range split(err) {
		var e *sandbox.Error
		if errors.As(one, &e) && e.Kind == sandbox.ErrDenied && e.Rule != "" {
			return exitDenied
		}
	}
	return exitCannot
}

// show prints a result: one JSON object, or a sentence on stderr when it was
// not the program's own end.
func (a *app) show(f *runFlags, r *sandbox.Result, reports []string) {
	if f.json {
		a.printJSON(resultObject(r, reports))
		a.showLimits(f, r)
		return
	}
	switch r.Status {
	case sandbox.StatusDenied:
		a.say("denied: %s", r.Reason)
		if r.Rule != "" {
			a.detail("rule", r.Rule)
		}
		if r.Hint != "" {
			a.detail("hint", r.Hint)
		}
	case sandbox.StatusTimeout, sandbox.StatusResourceExceeded:
		a.say("killed: %s%s", r.Reason, f.raise(r))
		if r.Rule != "" && r.Rule != "flag" {
			a.detail("rule", r.Rule)
		}
	default:
		if r.Signal == "SIGPIPE" {
			break // as any program whose reader went away
		}
		if r.Reason != "" {
			a.say("%s", r.Reason)
		} else if r.Signal != "" {
			a.say("the program was ended by %s", r.Signal)
		}
	}
	a.showFindings(r)
	a.showInspect(r)
	for _, name := range slices.Sorted(maps.Keys(r.Truncated)) {
		where := ""
		if at, ok := r.TruncatedAt[name]; ok {
			where = " after the first " + session.Size(at)
		}
		a.note("%s: %s cut%s%s", name, session.Size(r.Truncated[name]), where, f.with("keep more", sandbox.LimitOutput))
	}
	a.showLimits(f, r)
	a.showChanges(r.Changes)
	a.showFiles(r.Files)
	for _, u := range r.Uncollected {
		a.say("not collected: %s: %s", u.Pattern, u.Reason)
		if u.Hint != "" {
			a.detail("hint", u.Hint)
		}
	}
}

// showLimits names the limits that a call of the program failed for: what the program
// says of it is some error of its own.
func (a *app) showLimits(f *runFlags, r *sandbox.Result) {
	for _, l := range r.LimitsHit {
		if l != sandbox.LimitOutput { // which is said with how much was cut
			a.note("limit %s was reached%s", l, f.with("raise", l))
		}
	}
}

// maxShown is how many findings people see of a text, maxInspect of those in mounts.
const (
	maxShown   = 10
	maxInspect = 50
)

// toInspect says of a finding that it is a file, which a person has to look at.
func toInspect(f sandbox.Finding) bool { return f.Action == sandbox.ActionInspect }

// showInspect lists what a program left in read-write mounts.
func (a *app) showInspect(r *sandbox.Result) {
	n, hint := 0, ""
	for _, f := range r.Findings {
		if !toInspect(f) {
			continue
		}
		if n++; n <= maxInspect {
			a.say("finding: %s: %s", sandbox.Quoted(f.Text), f.Problem)
		}
		hint = f.Hint
	}
	if n > maxInspect {
		a.say("%d more findings (--json shows all)", n-maxInspect)
	}
	if hint != "" {
		a.detail("hint", hint)
	}
}

// showFindings lists what the rules about code say. The one that a refusal names
// is not said again.
func (a *app) showFindings(r *sandbox.Result) {
	named := r.Status != sandbox.StatusDenied
	said := slices.DeleteFunc(slices.Clone(r.Findings), toInspect)
	for i, f := range said {
		switch {
		case i == maxShown:
			a.note("%d more findings (--json shows all)", len(said)-i)
			return
		case !named && f.Action == "deny":
			named = true
		default:
			a.note("%s: %s (%s)", f.Action, f.Problem, f.Rule)
		}
	}
}

// raise names the flag that raises the limit behind r. A watch rule has none.
func (f *runFlags) raise(r *sandbox.Result) string {
	if r.Rule != "" {
		return ""
	}
	return f.with("raise", r.Resource)
}

// with names the flag of a limit, if the command has it: caisson tools call has none,
// and caisson sandbox exec one alone.
func (f *runFlags) with(what string, limit sandbox.LimitName) string {
	flag := flagOf(limit)
	if flag == "" || f.set == nil || f.set.Lookup(flag) == nil {
		return ""
	}
	return " (" + what + " with --" + flag + ")"
}

func flagOf(name sandbox.LimitName) string {
	for _, l := range limitTable() {
		if l.limit == name {
			return l.flag
		}
	}
	return ""
}

// maxSavedLines is how many files that came out have a line of their own.
const maxSavedLines = 10

// showFiles says which files came out: each in a line, or many in one.
func (a *app) showFiles(files []sandbox.File) {
	if len(files) > maxSavedLines {
		var size int64
		dir := filepath.Dir(files[0].SavedAs)
		for _, file := range files {
			size += file.Size
			for dir != filepath.Dir(dir) && !strings.HasPrefix(file.SavedAs, dir+string(filepath.Separator)) {
				dir = filepath.Dir(dir)
			}
		}
		a.note("saved %d files (%s) below %s", len(files), session.Size(size), dir)
		return
	}
	for _, file := range files {
		if file.Link != "" {
			a.note("saved %s (a link to %s)", file.SavedAs, file.Link)
			continue
		}
		a.note("saved %s (%s)", file.SavedAs, session.Size(file.Size))
	}
}

// resultJSON is a Result with its streams: text where it is UTF-8, base64
// where it is not.
type resultJSON struct {
	*sandbox.Result
	// Posture is nil where nothing ran, and where a daemon did not say.
	Posture      *sandbox.Posture `json:"posture,omitempty"`
	Stdout       *string          `json:"stdout,omitempty"`
	StdoutBase64 []byte           `json:"stdout_base64,omitempty"`
	Stderr       *string          `json:"stderr,omitempty"`
	StderrBase64 []byte           `json:"stderr_base64,omitempty"`
	Reports      []string         `json:"reports,omitempty"` // watch rules that only report
}

func resultObject(r *sandbox.Result, reports []string) resultJSON {
	o := resultJSON{Result: r, Reports: reports}
	if r.Posture.Isolation != "" {
		o.Posture = &r.Posture
	}
	if r.Status == sandbox.StatusDenied {
		return o // nothing ran: there are no streams
	}
	o.Stdout, o.StdoutBase64 = textOrBytes(r.Stdout)
	o.Stderr, o.StderrBase64 = textOrBytes(r.Stderr)
	return o
}

func textOrBytes(b []byte) (*string, []byte) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}

// signalNumber is the number of a signal's name on Linux, where programs run
// whatever this system is.
func signalNumber(name string) int {
	names := strings.Fields(`SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
		SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ
		SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS`)
	return slices.Index(names, name) + 1 // 0 for a name that is not known
}
