// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// kept is a name of a read-write mount that is mounted over itself. The mount
// lies on the file that has the name, not on the name: when somebody on the host
// puts another in its place (git config and most editors write a new file and
// rename it), the kernel takes the mount away in every namespace, and the new
// file is the sandbox's to write. Nothing can keep the host from that. So it is
// looked for, ends the program, and is told.
type kept struct {
	parent *os.File // of the name; it may be moved about
	base   string
	file   *os.File
	name   string // on the host, for people
}

// keepName notes what was opened as rel below a source.
func (r *run) keepName(src *hostpath.Source, rel, name string, file *os.File) error {
	parent, err := openBelow(src.File, path.Dir(rel))
	if err != nil {
		return err
	}
	r.undo.add(func(context.Context) error { return parent.Close() })
	r.kept = append(r.kept, kept{parent: parent, base: path.Base(rel), file: file, name: name})
	return nil
}

// replaced reports whether the name is another file's, or nobody's.
func (k kept) replaced() bool {
	then, err := k.file.Stat()
	if err != nil {
		return true
	}
	f, err := openBelow(k.parent, k.base)
	if err != nil {
		return true
	}
	defer f.Close()
	now, err := f.Stat()
	return err != nil || !os.SameFile(then, now)
}

// keptEvery is how often names are looked at. A program that waits for it is
// faster; that is why the end is looked at, too.
const keptEvery = 100 * time.Millisecond

// watchKept ends the program when a kept name is replaced. The caller calls stop.
func (r *run) watchKept(end context.CancelCauseFunc) (stop func()) {
	if len(r.kept) == 0 {
		return func() {}
	}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(keptEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
				if e := r.lost(); e != nil {
					end(e)
					return
				}
			}
		}
	}()
	return func() { close(over); <-done }
}

// lost is the ending of a run that lost a protection; nil when all are there.
func (r *run) lost() *ending {
	for _, k := range r.kept {
		if k.replaced() {
			return &ending{status: sandbox.StatusError, rule: "built-in: what later runs on the host",
				reason: fmt.Sprintf("%s was replaced on the host while the program could write beside it", quoted(k.name))}
		}
	}
	return nil
}

// tellLost says in the result what the program may have changed.
func (r *run) tellLost(res *sandbox.Result) {
	if e := r.lost(); e != nil {
		if res.Resource == "" {
			res.Status, res.Rule, res.Reason = e.status, e.rule, e.reason
		}
		res.Hint = "look at what is in it before you run git or an editor there; change such files when no sandbox can write to the directory"
	}
}
