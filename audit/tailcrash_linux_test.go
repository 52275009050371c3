// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

// TestTailUnsettled appends where the tail must not be relied on: the database is asked
// once, and nothing is lost.
func TestTailUnsettled(t *testing.T) {
	edit := func(change func(*tailHead)) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			says := sectorOf(t, dir)
			change(&says)
			putSector(t, dir, says)
		}
	}
	for name, do := range map[string]func(t *testing.T, dir string){
		"another boot":  edit(func(says *tailHead) { says.Boot = "ca1550" }),
		"no boot":       edit(func(says *tailHead) { says.Boot = "" }),
		"a commit":      edit(func(says *tailHead) { says.Open = true }),
		"the database":  edit(func(says *tailHead) { says.Base = "0" }),
		"a lost sector": func(t *testing.T, dir string) { putSector(t, dir, older(t, dir)) },
		"no sector": func(t *testing.T, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, tailFile), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(make([]byte, tailStart), 0)
			must(t, errors.Join(err, f.Close()))
		},
		"a long tail": func(t *testing.T, dir string) {
			l := openTail(t, dir, nil)
			for sectorOf(t, dir).End <= mostTail {
				in := intent("long")
				in.Code = bytes.Repeat([]byte("long"), 16<<10)
				_, err := l.Begin(ctx, in)
				must(t, err)
			}
		},
		"written by hand": func(t *testing.T, dir string) {
			db := raw(t, dir)
			_, err := db.Exec("UPDATE head SET one = 1")
			must(t, errors.Join(err, db.Close()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, ids := recordWithTail(t)
			do(t, dir)
			if Appendable(dir) && name != "a lost sector" {
				t.Error("it says that it can be appended to")
			}
			settled := 0
			ids = append(ids, call(t, openTail(t, dir, &settled), "c"))
			if settled != 1 {
				t.Errorf("the database was asked %d times", settled)
			}
			wantOK(t, verify(t, dir))
			wantIDs(t, dir, ids)
		})
	}
}

// older is the sector of dir as it was before the last frame.
func older(t *testing.T, dir string) tailHead {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, tailFile))
	must(t, err)
	says := sectorOf(t, dir)
	at := int64(tailStart)
	for {
		f, n, ok := parseFrame(b[at:], says.Head.Installation)
		if !ok || at+n == says.End {
			break
		}
		says.Head = f.head
		at += n
	}
	says.End = at
	return says
}

// TestTailCameBack has sector and audit.head be as they were before a call that was
// acknowledged, in the same boot: so they are where a disk went away with what was not
// synced, and came back. What was synced is not written over.
func TestTailCameBack(t *testing.T) {
	for _, empty := range []bool{false, true} {
		dir, ids := recordWithTail(t)
		if empty {
			must(t, settle(dir))
		}
		sector := sectorOf(t, dir)
		head, err := os.ReadFile(filepath.Join(dir, headFile))
		must(t, err)
		ids = append(ids, call(t, openTail(t, dir, nil), "c"))
		putSector(t, dir, sector)
		must(t, os.WriteFile(filepath.Join(dir, headFile), head, 0o600))
		settled := 0
		ids = append(ids, call(t, openTail(t, dir, &settled), "d"))
		if settled != 1 {
			t.Errorf("the database was asked %d times", settled)
		}
		wantIDs(t, dir, ids)
		wantOK(t, verify(t, dir))
	}
}

// TestTailReplaced: the lock of a file that is not the tail any more is none.
func TestTailReplaced(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"moved away": func(path string) error { return os.Rename(path, path+".away") },
		"replaced": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
	} {
		dir, _ := recordWithTail(t)
		path := filepath.Join(dir, tailFile)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		must(t, do(path))
		if err := lockTail(f, path); !errors.Is(err, errTailHeld) {
			t.Errorf("%s: %v", name, err)
		}
		must(t, f.Close())
	}
}

// TestTailStillUnsettled: a tail that never gets in order fails the call.
func TestTailStillUnsettled(t *testing.T) {
	dir, _ := recordWithTail(t)
	says := sectorOf(t, dir)
	says.Boot = "ca1550"
	asked := 0
	l, err := OpenTail(Options{Dir: dir}, func(context.Context) error { asked++; putSector(t, dir, says); return nil })
	must(t, err)
	putSector(t, dir, says)
	if _, err := l.Begin(ctx, intent("x")); !errors.Is(err, sandbox.ErrUnavailable) || sandbox.Hint(err) == "" || asked != mostSettled {
		t.Errorf("%v after %d times", err, asked)
	}
	mine := errors.New("no program")
	l, err = OpenTail(Options{Dir: dir}, func(context.Context) error { return mine })
	must(t, err)
	if _, err := l.Begin(ctx, intent("x")); !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
}

// TestTailKilledInCommit leaves the files as a process does that is killed when SQLite
// has committed: nobody goes on from the head that was there before. The database's
// times are made to tell nothing.
func TestTailKilledInCommit(t *testing.T) {
	dir, ids := recordWithTail(t)
	l, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	killed := errors.New("killed")
	l.onCommit = func() { panic(killed) }
	func() {
		defer func() {
			if r := recover(); r != killed {
				t.Errorf("%v", r)
			}
		}()
		l.Begin(ctx, intent("killed"))
	}()
	says := sectorOf(t, dir)
	says.Base = fingerprint(dir)
	putSector(t, dir, says)
	settled := 0
	ids = append(ids, call(t, openTail(t, dir, &settled), "c"))
	if settled != 1 {
		t.Errorf("the database was asked %d times", settled)
	}
	must(t, l.Close())
	wantOK(t, verify(t, dir))
	wantIDs(t, dir, ids)
}

// TestTailInvariant mixes both roads with what kills and power cuts leave: what was
// acknowledged is there, and the chain is whole.
func TestTailInvariant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		l, err := Open(ctx, Options{Dir: dir})
		must(t, err)
		defer func() { must(t, l.Close()) }()
		done := map[string]bool{call(t, l, "first"): true}
		path := func(name string) string { return filepath.Join(dir, name) }
		read := func(name string) []byte { b, err := os.ReadFile(path(name)); must(t, err); return b }
		// over puts bytes into a file that is not made anew.
		over := func(name string, b []byte) {
			f, err := os.OpenFile(path(name), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(b, 0)
			must(t, errors.Join(err, f.Close()))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"database": func(*rapid.T) { done[call(t, l, "d")] = true },
			"tail":     func(*rapid.T) { done[call(t, openTail(t, dir, nil), "t")] = true },
			"refuse":   func(*rapid.T) { must(t, openTail(t, dir, nil).Refuse(ctx, intent("r"), Outcome{Status: Refused})) },
			"settle":   func(*rapid.T) { must(t, l.Settle(ctx)) },
			"read":     func(*rapid.T) { list(t, l, Filter{}) },
			"killed before it could say that a frame is there": func(*rapid.T) {
				if sectorOf(t, dir).Open {
					return
				}
				must(t, settle(dir))
				sector, head := read(tailFile)[:tailStart], read(headFile)
				_, err := openTail(t, dir, nil).Begin(ctx, intent("k"))
				must(t, err)
				over(tailFile, sector)
				over(headFile, head)
			},
			"power cut": func(rt *rapid.T) {
				// Sectors go back to what they were, and nothing that was synced does.
				sector, head := read(tailFile)[:tailStart], read(headFile)
				for range rapid.IntRange(0, 3).Draw(rt, "calls") {
					done[call(t, openTail(t, dir, nil), "p")] = true
				}
				if says := sectorOf(t, dir); says.End > tailStart {
					was, _ := parseTailHead(sector)
					// Or a disk went away and came back.
					was.Boot = rapid.SampledFrom([]string{"before", was.Boot}).Draw(rt, "boot")
					if says.End >= was.End { // it was not settled meanwhile
						sector, err = was.sector()
						must(t, err)
						over(tailFile, sector)
						over(headFile, head)
					}
				}
			},
		})
		rep, err := l.Verify(ctx)
		must(t, err)
		if !rep.OK() {
			rt.Fatalf("%v", rep.Findings)
		}
		_, all := list(t, l, Filter{})
		for _, r := range all {
			if done[r.ID] && r.Status == Allowed {
				delete(done, r.ID)
			}
		}
		if len(done) > 0 {
			rt.Fatalf("lost: %v", slices.Collect(maps.Keys(done)))
		}
	})
}
