// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// writers is how many files are written at once: each waits for the disk.
const writers = 16

// openRoot opens the workspace and sees that it is the one that the set was made of.
func openRoot(set *Set, o *ApplyOptions) (*os.File, error) {
	op := "apply change set " + set.ID
	name := set.Name
	from := unix.AT_FDCWD
	if o.Root != nil {
		name, from = ".", int(o.Root.Fd())
	}
	fd, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrNotFound, Problem: "its workspace " + sandbox.Quoted(set.Name) + " cannot be opened", Hint: "see that the directory is still there", Cause: err}
	}
	root := os.NewFile(uintptr(fd), set.Name)
	dev, inode, err := identity(root)
	if err != nil || (Root{dev, inode}) != set.Root {
		root.Close()
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrConflict, Problem: sandbox.Quoted(set.Name) + " is another directory than the one that the set was made of", Hint: "run again in the directory that is there now", Cause: err}
	}
	return root, nil
}

// applying is one Apply.
type applying struct {
	store   *Store
	set     *Set
	plan    *plan
	journal *journal

	mu   sync.Mutex
	done []bool
	left map[int]string
	err  error
}

func (s *Store) apply(ctx context.Context, sel *selection, o *ApplyOptions, root *os.File) (*Applied, error) {
	set := sel.set
	h := &host{root: root}
	out := &Applied{ID: set.ID, Digest: set.Digest}
	head, lines, err := readJournal(s.path(set.ID, journalFile), set)
	if err != nil {
		return nil, damaged(set.ID, err)
	}
	if head != nil {
		recoverNames(h, set, lines)
		out.Resumed = true
		for _, i := range head.Chosen {
			if i >= 0 && i < len(sel.chosen) {
				sel.chosen[i] = true
			}
		}
	}
	p, err := makePlan(ctx, sel, h)
	if err != nil {
		return nil, err
	}
	a := &applying{store: s, set: set, plan: p, done: make([]bool, len(set.Entries)), left: map[int]string{}}
	if slices.ContainsFunc(p.conflicts, func(why string) bool { return why != "" }) && !o.SkipConflicts {
		a.tell(out)
		return out, out.conflicted(true)
	}
	if slices.Contains(p.ready, true) {
		if err := a.carryOut(ctx); err != nil {
			a.tell(out)
			return out, err
		}
	}
	before := len(out.Conflicts)
	a.tell(out)
	if err := a.finish(); err != nil {
		return out, err
	}
	if len(out.Conflicts) > before && !o.SkipConflicts {
		return out, out.conflicted(false)
	}
	return out, nil
}

// carryOut applies what is ready. Where it fails the journal stays.
func (a *applying) carryOut(ctx context.Context) error {
	var chosen []int
	for i, c := range a.plan.sel.chosen {
		if c {
			chosen = append(chosen, i)
		}
	}
	j, err := startJournal(a.store.path(a.set.ID, journalFile), journalHead{a.set.Digest, chosen})
	if err != nil {
		return storeError("apply change set "+a.set.ID, err)
	}
	defer j.f.Close()
	a.journal = j
	for _, step := range a.steps() {
		a.each(ctx, step)
		if a.err != nil {
			return &sandbox.Error{Op: "apply change set " + a.set.ID, Kind: sandbox.ErrUnavailable, Problem: "it ended half way; each file is the old one or the new one", Hint: "see what is wrong, then apply again: it goes on", Cause: a.err}
		}
	}
	return nil
}

// steps orders what is ready, in lists of entries that may be applied at once: what must
// give way, directories, files and links, removals, and modes last, for a directory may no
// longer be written then.
func (a *applying) steps() [][]int {
	var clear, dirs, files, removals, modes []int
	replaced := ""
	for i := range a.set.Entries {
		e := &a.set.Entries[i]
		if e.Op == Change && e.Base.Type == Dir {
			replaced = e.Path + "/"
		}
		switch {
		case !a.plan.ready[i]:
		case e.Op == Remove && replaced != "" && len(e.Path) > len(replaced) && e.Path[:len(replaced)] == replaced:
			clear = append(clear, i)
		case e.Op == Remove:
			removals = append(removals, i)
		case e.Op == Mode:
			modes = append(modes, i)
		case e.Type == Dir:
			dirs = append(dirs, i)
		default:
			files = append(files, i)
		}
	}
	// Outer directories are made first; what is in a directory goes first, and so does its
	// mode.
	return slices.Concat(a.byDepth(clear, true), a.byDepth(dirs, false), [][]int{files}, a.byDepth(removals, true), a.byDepth(modes, true))
}

// byDepth makes a list of each depth.
func (a *applying) byDepth(entries []int, deepest bool) (all [][]int) {
	depth := func(i int) int { return strings.Count(a.set.Entries[i].Path, "/") }
	slices.SortStableFunc(entries, func(i, j int) int { return depth(i) - depth(j) })
	for k, i := range entries {
		if k == 0 || depth(i) != depth(entries[k-1]) {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	if deepest {
		slices.Reverse(all)
	}
	return all
}

// each applies the entries of a step.
func (a *applying) each(ctx context.Context, step []int) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(writers, len(step)) {
		wg.Go(func() {
			for i := range next {
				a.note(i, a.one(i))
			}
		})
	}
	for _, i := range step {
		err := ctx.Err()
		a.mu.Lock()
		if a.err == nil {
			a.err = err
		}
		stop := a.err != nil
		a.mu.Unlock()
		if stop {
			break
		}
		next <- i
	}
	close(next)
	wg.Wait()
}

// note takes down how an entry went.
func (a *applying) note(i int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.done[i] = true
	case errors.Is(err, errConflict):
		a.plan.conflicts[i] = errConflict.Error()
	case errors.Is(err, unix.ENOTEMPTY) && a.set.Entries[i].Op == Remove:
		a.left[i] = "the directory is not empty"
	case a.err == nil:
		a.err = fmt.Errorf("%s: %w", Shown(a.set.Entries[i].Path), err)
	}
}

// one applies one entry.
func (a *applying) one(i int) error {
	e := &a.set.Entries[i]
	p, err := placeIn(a.plan.host, a.journal, i, e)
	if err != nil {
		return err
	}
	defer p.close()
	switch {
	case e.Op == Remove:
		return p.takeAway()
	case e.Op == Mode:
		return p.setMode()
	case e.Type == Dir:
		return p.makeDir()
	case e.Type == Link:
		return p.makeLink()
	}
	content, err := a.store.content(a.set.ID, e)
	if err != nil {
		return err
	}
	defer content.Close()
	return p.makeFile(content)
}

// tell writes down how all entries went.
func (a *applying) tell(out *Applied) {
	sel := a.plan.sel
	for i := range a.set.Entries {
		at := a.set.Entries[i].Path
		switch {
		case a.done[i]:
			out.Paths = append(out.Paths, at)
		case a.plan.already[i]:
			out.Already = append(out.Already, at)
		case a.plan.conflicts[i] != "":
			out.Conflicts = append(out.Conflicts, Conflict{at, a.plan.conflicts[i]})
		case a.left[i] != "":
			out.Left = append(out.Left, Left{at, a.left[i]})
		}
	}
	for _, l := range sel.left {
		if i, ok := sel.find(l.Path); ok && !sel.chosen[i] {
			out.Left = append(out.Left, l)
		}
	}
}

// applied is what is kept of a set's state: the entries that the host has.
type applied struct {
	State
	Done []int `json:"done"`
}

// finish notes what was applied and ends the journal. Directories are on the disk first.
func (a *applying) finish() error {
	if err := a.syncDirs(); err != nil {
		return storeError("apply change set "+a.set.ID, err)
	}
	name := a.store.path(a.set.ID, stateFile)
	var st applied
	if b, err := os.ReadFile(name); err == nil {
		_ = json.Unmarshal(b, &st) // what is lost is a count
	}
	have := make([]bool, len(a.done))
	for _, i := range st.Done {
		if i >= 0 && i < len(have) {
			have[i] = true
		}
	}
	st.Done = nil
	nFiles := 0
	for i := range have {
		if have[i] || a.done[i] || a.plan.already[i] {
			st.Done = append(st.Done, i)
			if a.set.Entries[i].Type != Dir {
				nFiles++
			}
		}
	}
	st.State = State{Applied: len(st.Done), Files: &nFiles, AppliedAt: a.store.o.Now().UTC().Round(0)}
	b, err := json.Marshal(st)
	if err == nil {
		err = os.WriteFile(name+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil {
		if err = os.Remove(a.store.path(a.set.ID, journalFile)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return storeError("apply change set "+a.set.ID, err)
	}
	return nil
}

// syncDirs has the new names on the disk before the journal goes.
func (a *applying) syncDirs() error {
	dirs := map[string]bool{}
	for i := range a.done {
		if a.done[i] {
			dirs[path.Dir(a.set.Entries[i].Path)] = true
		}
	}
	for dir := range dirs {
		fd, err := a.plan.host.at(dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // it was removed
		}
		err = unix.Fsync(fd)
		unix.Close(fd)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return nil
}
