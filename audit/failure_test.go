// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/sandbox"
)

// TestCrashWhileMaking opens what a process left that died at each step of
// making a record: nothing yet says that there was one, so it is made.
func TestCrashWhileMaking(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"after the key": func(dir string) error { return makeKey(filepath.Join(dir, keyFile), bytes.NewReader(make([]byte, 32))) },
		"after the file": func(dir string) error {
			return errors.Join(makeKey(filepath.Join(dir, keyFile), bytes.NewReader(make([]byte, 32))), os.WriteFile(filepath.Join(dir, dbFile), nil, 0o600))
		},
		"while it made the database": halfMade,
		"before the head": func(dir string) error {
			l, err := Open(ctx, Options{Dir: dir})
			if err != nil {
				return err
			}
			return errors.Join(l.Close(), os.Remove(filepath.Join(dir, headFile)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, prepare(dir))
			must(t, appendOne(dir))
			wantOK(t, verify(t, dir))
			if _, err := os.Stat(filepath.Join(dir, headFile)); err != nil {
				t.Error(err)
			}
		})
	}
}

// halfMade leaves what a process does that was killed while SQLite wrote the first page:
// the page, and the journal by which that is taken back.
func halfMade(dir string) error {
	at := filepath.Join(dir, "elsewhere", dbFile)
	db, err := sql.Open("sqlite", "file:"+at+"?_pragma=cache_size(1)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	err = errors.Join(makeKey(filepath.Join(dir, keyFile), rand.Reader), os.Mkdir(filepath.Dir(at), 0o700))
	for _, do := range []string{"BEGIN IMMEDIATE", "CREATE TABLE x (b)", "INSERT INTO x VALUES (zeroblob(1000000))"} {
		if err == nil {
			_, err = db.Exec(do)
		}
	}
	for _, name := range []string{dbFile, dbFile + "-journal"} {
		b, rerr := os.ReadFile(filepath.Join(filepath.Dir(at), name))
		if rerr == nil && len(b) == 0 {
			rerr = errors.New(name + " is empty")
		}
		err = errors.Join(err, rerr, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	return err
}

// TestReadAfterCrash reads what was left by a process that died while it made a record:
// nothing was recorded.
func TestReadAfterCrash(t *testing.T) {
	dir := t.TempDir()
	must(t, halfMade(dir))
	if l, err := Open(ctx, Options{Dir: dir, ReadOnly: true}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%v, %v, want nothing recorded yet", l, err)
	}
	must(t, halfMadeNoMore(dir))
	must(t, appendOne(dir))
	wantOK(t, verify(t, dir))
}

func halfMadeNoMore(dir string) error {
	if b, err := os.ReadFile(filepath.Join(dir, dbFile)); err != nil || len(b) > 0 {
		return fmt.Errorf("%d bytes are left of it: %w", len(b), err)
	}
	return nil
}

// TestWaitsForAnother opens a record that another process has for itself for a moment, as
// one has that reads SQLite's log after one that was killed, or takes it away.
func TestWaitsForAnother(t *testing.T) {
	for name, readOnly := range map[string]bool{"to read": true, "to write": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, appendOne(dir))
			other, err := sql.Open("sqlite", "file:"+filepath.Join(dir, dbFile)+"?_pragma=locking_mode(exclusive)")
			must(t, err)
			defer other.Close()
			other.SetMaxOpenConns(1)
			_, err = other.Exec("UPDATE head SET one = one")
			must(t, err)
			busy := false
			l := &Log{dir: dir, now: clock(), rand: rand.Reader, onBusy: func() { busy = true; must(t, other.Close()) }}
			must(t, l.open(ctx, readOnly))
			must(t, l.Close())
			if !busy {
				t.Error("it was not locked")
			}
			wantOK(t, verify(t, dir))
		})
	}
}

// TestNoDamage tells what says nothing of a record from what says that it is damaged.
func TestNoDamage(t *testing.T) {
	dir := t.TempDir()
	must(t, appendOne(dir))
	l, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	defer l.Close()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	tx, err := l.w.Begin()
	must(t, err)
	defer tx.Rollback()
	other, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	defer other.Close()
	_, busy := other.w.Begin()
	_, missing := l.r.Exec("SELECT * FROM nothing")
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want bool
	}{{ctx, nil, false}, {ctx, missing, false}, {ctx, sql.ErrNoRows, false}, {gone, context.Canceled, true}} {
		if passing(c.ctx, c.err) != c.want {
			t.Errorf("%v: want %v", c.err, c.want)
		}
	}
	if !isBusy(busy) || !passing(ctx, busy) {
		t.Errorf("%v: want one that passes", busy)
	}
}

// TestFollowNew follows a record whose maker has not made its head yet.
func TestFollowNew(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	defer l.Close()
	must(t, os.Remove(filepath.Join(dir, headFile)))
	r, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer r.Close()
	none := func(Record) bool { return false }
	if err := r.Follow(ctx, Filter{}, none); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%v, want nothing recorded yet", err)
	}
	r.onLook = func() { must(t, appendOne(dir)) }
	must(t, r.Follow(ctx, Filter{Limit: 1}, none))
}

// TestMadeAtOnce has many open a new directory at the same moment: one key, one
// genesis, and none fails.
func TestMadeAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if err := appendOne(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	rep := verify(t, dir)
	wantOK(t, rep)
	if rep.Records != 13 {
		t.Errorf("%d records, want 13", rep.Records)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".audit-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestMadeMeanwhile has another process make the record between one's looks for its
// files: that is no record which has lost its database.
func TestMadeMeanwhile(t *testing.T) {
	dir := t.TempDir()
	l := &Log{dir: dir, now: clock(), rand: rand.Reader, onLook: func() { must(t, appendOne(dir)) }}
	must(t, l.open(ctx, false))
	must(t, l.Close())
	wantOK(t, verify(t, dir))

	// A reader finds an empty database, and the rest when it has looked.
	dir = t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, dbFile), nil, 0o600))
	l = &Log{dir: dir, onLook: func() { must(t, os.WriteFile(filepath.Join(dir, headFile), nil, 0o600)) }}
	if err := l.open(ctx, true); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("%v, want nothing recorded yet", err)
	}
	l.Close()
}

func TestUnusableKey(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "short": keyPrefix + "00\n", "not hex": keyPrefix + strings.Repeat("zz", 32) + "\n", "no prefix": strings.Repeat("00", 32) + "\n",
		"a byte more": keyPrefix + strings.Repeat("00", 32) + "\n\n", "another version": "caisson-audit-key-v2 " + strings.Repeat("00", 32) + "\n",
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, keyFile), []byte(text), 0o600))
		if _, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, sandbox.ErrUnavailable) || sandbox.Hint(err) == "" {
			t.Errorf("%s: Open = %v, want ErrUnavailable with a hint", name, err)
		}
	}
	dir := t.TempDir()
	must(t, os.Symlink("/dev/zero", filepath.Join(dir, keyFile)))
	if _, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("a link: Open = %v, want ErrUnavailable", err)
	}
}

// TestNoRandomness: without it there is no key and no id, and nothing runs.
func TestNoRandomness(t *testing.T) {
	broken := iotest.ErrReader(errors.New("no entropy"))
	dir := t.TempDir()
	if _, err := Open(ctx, Options{Dir: dir, Rand: broken}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("Open = %v, want ErrUnavailable", err)
	}
	if exists(filepath.Join(dir, keyFile)) {
		t.Error("a key was made")
	}
	must(t, open(t, dir).Close())
	l, err := Open(ctx, Options{Dir: dir, Rand: broken})
	must(t, err)
	defer l.Close()
	if _, err := l.Begin(ctx, intent("a")); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("Begin = %v, want ErrUnavailable", err)
	}
	if err := l.Refuse(ctx, intent("a"), Outcome{Status: Refused}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("Refuse = %v, want ErrUnavailable", err)
	}
}

func TestNoDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	if _, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, sandbox.ErrUnavailable) || sandbox.Hint(err) == "" {
		t.Errorf("Open = %v, want ErrUnavailable with a hint", err)
	}
}

// TestEndTwice ends one call from two processes' logs: the chain takes one.
func TestEndTwice(t *testing.T) {
	dir := t.TempDir()
	l, other := open(t, dir), open(t, dir)
	e, err := l.Begin(ctx, intent("a"))
	must(t, err)
	must(t, e.End(ctx, outcome("a")))
	if err := (&Entry{ID: e.ID, log: other}).End(ctx, outcome("b")); !errors.Is(err, sandbox.ErrConflict) {
		t.Errorf("the other End = %v, want ErrConflict", err)
	}
	if err := (&Entry{ID: e.ID, log: other}).End(ctx, Outcome{}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("End without a status = %v, want ErrInvalid", err)
	}
	wantOK(t, verify(t, dir))
}

// TestRedactWhileRead: the content is gone from the record at once, and the
// caller is told that a reader still keeps the old pages alive.
func TestRedactWhileRead(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	id := call(t, l, "a")
	d, err := l.Show(ctx, id)
	must(t, err)
	reader, err := l.r.BeginTx(ctx, nil)
	must(t, err)
	defer reader.Rollback()
	var n int
	must(t, reader.QueryRow("SELECT count(*) FROM blobs").Scan(&n))
	err = l.Redact(ctx, d.Ending.Stdout.SHA256, "a password")
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "is deleted, but") || sandbox.Hint(err) == "" {
		t.Errorf("Redact = %v, want it to say that a reader holds the old pages", err)
	}
	if d, err = l.Show(ctx, id); err != nil || d.Stdout != nil {
		t.Errorf("it still shows: %q, %v", d.Stdout, err)
	}

	// Who was told so, or was killed just then, asks again.
	must(t, reader.Rollback())
	for name, again := range map[string]func() error{
		"redact": func() error { return l.Redact(ctx, d.Ending.Stdout.SHA256, "a password") },
		"prune":  func() error { _, err := l.Prune(ctx, time.Unix(0, 0)); return err },
	} {
		if err := again(); err != nil && !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s again: %v", name, err)
		}
		if info, err := os.Stat(filepath.Join(dir, dbFile+"-wal")); err != nil || info.Size() != 0 {
			t.Errorf("%s again leaves the log: %v, %v", name, info.Size(), err)
		}
		must(t, appendOne(dir))
	}
}

// TestReportIsBounded damages more records than a report lists.
func TestReportIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	for i := range maxFindings/2 + 1 {
		call(t, l, fmt.Sprint(i))
	}
	must(t, l.Close())
	db := raw(t, dir)
	_, err := db.Exec("UPDATE records SET at = at + 1")
	must(t, err)
	must(t, db.Close())
	rep := verify(t, dir)
	if len(rep.Findings) != maxFindings || !rep.More {
		t.Errorf("%d findings, more: %v", len(rep.Findings), rep.More)
	}
	if got := (Finding{7, "edited", "why"}).String(); got != "record 7: edited: why" {
		t.Errorf("String() = %q", got)
	}
	if got := (Finding{0, "key", "why"}).String(); got != "key: why" {
		t.Errorf("String() = %q", got)
	}
}

func TestCSV(t *testing.T) {
	l := open(t, t.TempDir())
	exit := -1
	out := outcome("a")
	out.Result.ExitCode, out.Result.Reason = &exit, "\ta tab,\nand a line"
	e, err := l.Begin(ctx, intent("a"))
	must(t, err)
	must(t, e.End(ctx, out))
	_, err = l.Begin(ctx, intent("b"))
	must(t, err)
	must(t, l.Refuse(ctx, intent("c"), Outcome{Status: Failed, Error: "@SUM(1)"}))
	var b bytes.Buffer
	must(t, l.Export(ctx, &b, CSV, Filter{}))
	rows, err := csv.NewReader(&b).ReadAll()
	must(t, err)
	var got [][]string
	for _, r := range rows {
		got = append(got, []string{r[4], r[5], r[10], r[11], r[15], r[16]})
	}
	want := [][]string{
		{"status", "result", "command", "exit_code", "reason", "wall_ms"},
		{"allowed", "success", "python3 -c a", "-1", " a tab, and a line", "12"},
		{"unfinished", "", "python3 -c b", "", "", ""},
		{"failed", "", "python3 -c c", "", "'@SUM(1)", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestExportFails: what cannot be written, or not be read to the end, is an
// error and never a short file that looks whole.
func TestExportFails(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "a")
	full := errors.New("disk full")
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	for _, format := range []string{JSONL, CSV} {
		if err := l.Export(ctx, failing{full}, format, Filter{}); !errors.Is(err, full) {
			t.Errorf("%s to a full disk = %v", format, err)
		}
		if err := l.Export(stopped, io.Discard, format, Filter{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s when cancelled = %v", format, err)
		}
	}
	_, err := l.w.Exec("UPDATE records SET body = x'7b' WHERE seq = 3; UPDATE head SET at = 0")
	must(t, err)
	for _, format := range []string{JSONL, CSV} {
		if err := l.Export(ctx, io.Discard, format, Filter{}); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%s of a damaged record = %v, want ErrUnavailable", format, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
