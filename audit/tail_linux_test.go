// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-run/caisson/internal/database"
	"github.com/caisson-run/caisson/sandbox"
)

// openTail opens the record of dir for appending to its tail, and counts in settled how
// often the database was asked to look at it.
func openTail(t testing.TB, dir string, settled *int) *Log {
	t.Helper()
	l, err := OpenTail(Options{Dir: dir, Now: clock()}, func(ctx context.Context) error {
		if settled != nil {
			*settled++
		}
		return settle(dir)
	})
	must(t, err)
	return l
}

// settle does what the process does that an appender asks: it does not close the log.
func settle(dir string) error {
	l, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	if err := l.Settle(ctx); err != nil {
		return err
	}
	return l.Close()
}

// recordWithTail is a record whose last two calls lie in the tail.
func recordWithTail(t testing.TB) (dir string, ids []string) {
	t.Helper()
	dir = t.TempDir()
	l, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	ids = append(ids, call(t, l, "in the database"))
	must(t, l.Close())
	for _, name := range []string{"a", "b"} {
		ids = append(ids, call(t, openTail(t, dir, nil), name))
	}
	return dir, ids
}

// sectorOf is what the tail of dir says of itself.
func sectorOf(t testing.TB, dir string) tailHead {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, tailFile))
	must(t, err)
	says, ok := parseTailHead(b[:tailStart])
	if !ok {
		t.Fatalf("%q", b[:tailStart])
	}
	return says
}

// putSector has the tail of dir say something else of itself.
func putSector(t testing.TB, dir string, says tailHead) {
	t.Helper()
	b, err := says.sector()
	must(t, err)
	f, err := os.OpenFile(filepath.Join(dir, tailFile), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(b, 0)
	must(t, errors.Join(err, f.Close()))
}

// count is how many records the database of dir holds, whatever lies in the tail.
func count(t testing.TB, dir string) (n int) {
	t.Helper()
	db := raw(t, dir)
	defer db.Close()
	must(t, db.QueryRow("SELECT count(*) FROM records").Scan(&n))
	return n
}

// TestTail appends without the database, and reads what was appended with it.
func TestTail(t *testing.T) {
	dir := t.TempDir()
	if Appendable(dir) {
		t.Error("there is no record, and it can be appended to")
	}
	l, err := Open(ctx, Options{Dir: dir})
	must(t, err)
	defer l.Close()
	ids := []string{call(t, l, "a")}
	if !Appendable(dir) {
		t.Error("a record that is in order cannot be appended to")
	}
	settled := 0
	tail := openTail(t, dir, &settled)
	ids = append(ids, call(t, tail, "b"))
	must(t, tail.Refuse(ctx, intent("c"), Outcome{Status: Refused, Error: "no"}))
	must(t, tail.Connections(ctx, []Connection{{Actor: "x", Sandbox: "sbx_b", Status: Allowed, Connection: sandbox.Connection{Host: "example.com", Port: 443}}}))
	if n := count(t, dir); settled != 0 || n != 3 {
		t.Errorf("the database was asked %d times, and holds %d records", settled, n)
	}
	if _, all := list(t, l, Filter{OldestFirst: true}); len(all) != 4 || all[1].ID != ids[1] || all[1].Status != Allowed || all[3].Call.Kind != KindConnection {
		t.Errorf("%v", all)
	}
	d, err := l.Show(ctx, ids[1])
	must(t, err)
	if string(d.Stdout) != "out of b" || string(d.Code) != "print(b)" {
		t.Errorf("%q, %q", d.Stdout, d.Code)
	}
	ids = append(ids, call(t, l, "d"), call(t, tail, "e"), call(t, tail, "f"), call(t, l, "g"))
	if settled != 0 {
		t.Errorf("the database was asked %d times", settled)
	}
	must(t, l.Close())
	call(t, tail, "h")
	if settled != 0 {
		t.Errorf("after Close the database was asked %d times", settled)
	}
	wantOK(t, verify(t, dir))
	if rep := verify(t, dir); rep.Records != 18 {
		t.Errorf("%d records of %v", rep.Records, ids)
	}
	if _, err := tail.Show(ctx, ids[0]); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("reading without the database: %v", err)
	}
}

// TestTailReadOnly reads what lies in the tail with each of the ways to read.
func TestTailReadOnly(t *testing.T) {
	reads := map[string]func(l *Log, id string) error{
		"show": func(l *Log, id string) error { _, err := l.Show(ctx, id); return err },
		"export": func(l *Log, id string) error {
			var b bytes.Buffer
			return wantIn(&b, id, l.Export(ctx, &b, JSONL, Filter{}))
		},
		"last": func(l *Log, id string) error {
			var b bytes.Buffer
			err := l.Last(ctx, Filter{Limit: 1}, func(r Record) bool { b.WriteString(r.ID); return true })
			return wantIn(&b, id, err)
		},
		"follow": func(l *Log, id string) error {
			var b bytes.Buffer
			err := l.Follow(ctx, Filter{Limit: 1}, func(r Record) bool { b.WriteString(r.ID); return false })
			return wantIn(&b, id, err)
		},
		"checkpoint": func(l *Log, _ string) error {
			c, err := l.Checkpoint(ctx)
			if err == nil && c.Count != 7 {
				err = fmt.Errorf("%d records", c.Count)
			}
			return err
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			dir, ids := recordWithTail(t)
			l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
			must(t, err)
			defer l.Close()
			must(t, read(l, ids[2]))
		})
	}
}

func wantIn(b *bytes.Buffer, id string, err error) error {
	if err == nil && !bytes.Contains(b.Bytes(), []byte(id)) {
		err = fmt.Errorf("%s is not in %q", id, b)
	}
	return err
}

// TestTailHeld waits for a tail that somebody else has: it asks seldom, since a hundred
// may wait, and gives up with its caller.
func TestTailHeld(t *testing.T) {
	dir, _ := recordWithTail(t)
	held, err := open(t, dir).holdTail(ctx)
	must(t, err)
	defer held.release()
	l, asked := openTail(t, dir, nil), 0
	impatient, cancel := context.WithCancel(ctx)
	defer cancel()
	l.onBusy = func() {
		if asked++; asked == 5 {
			cancel()
		}
	}
	if _, err := l.Begin(impatient, intent("x")); !errors.Is(err, context.Canceled) || !errors.Is(err, errTailHeld) {
		t.Errorf("%v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		asked = 10
		impatient, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := l.holdTail(impatient); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errTailHeld) {
			t.Errorf("%v", err)
		}
		if asked -= 10; asked < 2 || asked > 80 {
			t.Errorf("it asked %d times in a second", asked)
		}
	})
	if early, late := nextWait(time.Second, 0), nextWait(time.Second, busyWait/2); late >= early {
		t.Errorf("who has waited for long waits %v for the next time, who has just come %v", late, early)
	}
}

// TestReadersLeaveTheTail: who only reads leaves nothing that the next run would have to
// look at, although SQLite gives its log to its owner when root opens it.
func TestReadersLeaveTheTail(t *testing.T) {
	dir, _ := recordWithTail(t)
	for range 3 { // the first takes in what waits
		l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
		must(t, err)
		for _, err := range l.Query(ctx, Filter{}) {
			must(t, err)
		}
		must(t, l.Close())
		log := filepath.Join(dir, dbFile+"-wal")
		if exists(log) {
			must(t, os.Chown(log, os.Geteuid(), os.Getegid()))
		}
		if !Appendable(dir) {
			t.Fatalf("it has to be looked at: %+v", sectorOf(t, dir))
		}
	}
}

// TestTailFaults: what keeps a file from being written is said as it is of the database.
func TestTailFaults(t *testing.T) {
	for errno, says := range map[error]string{
		syscall.ENOSPC: "full or failing", syscall.EDQUOT: "full or failing", syscall.EIO: "full or failing", syscall.EFBIG: "full or failing",
		syscall.EACCES: "cannot be written", syscall.EPERM: "cannot be written", syscall.EROFS: "cannot be written",
	} {
		err := unavailable("audit", &os.PathError{Op: "write", Path: "audit.tail", Err: errno})
		if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), says) || sandbox.Hint(err) == "" {
			t.Errorf("%v: %v", errno, err)
		}
		if full := says == "full or failing" && errno != syscall.EIO && errno != syscall.EFBIG; database.Full(err) != full {
			t.Errorf("%v is a full disk: %v", errno, !full)
		}
	}
}

// TestTailUnreadable reads where the tail cannot be: what the database holds is read, and
// it is said that this is not all.
func TestTailUnreadable(t *testing.T) {
	var b bytes.Buffer
	gather := func(r Record) bool { b.WriteString(r.ID); return true }
	for name, read := range map[string]func(l *Log) error{
		"query": func(l *Log) error {
			for r, err := range l.Query(ctx, Filter{}) {
				if err != nil {
					return err
				}
				gather(r)
			}
			return nil
		},
		"last":  func(l *Log) error { return l.Last(ctx, Filter{Limit: 9}, gather) },
		"jsonl": func(l *Log) error { return l.Export(ctx, &b, JSONL, Filter{}) },
		"csv":   func(l *Log) error { return l.Export(ctx, &b, CSV, Filter{}) },
		"ocsf":  func(l *Log) error { return l.Export(ctx, &b, OCSF, Filter{}) },
	} {
		dir, ids := recordWithTail(t)
		b.Reset()
		path := filepath.Join(dir, tailFile)
		must(t, errors.Join(os.Rename(path, path+".x"), os.Symlink(path+".x", path)))
		l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
		must(t, err)
		defer l.Close()
		if err := read(l); !isDamage(err) {
			t.Errorf("%s: %v", name, err)
		}
		if s := b.String(); !strings.Contains(s, ids[0]) || strings.Contains(s, ids[1]) || strings.Contains(s, "checkpoint") {
			t.Errorf("%s: %s", name, s)
		}
		if d, err := l.Show(ctx, ids[0]); err != nil || d.Status != Allowed {
			t.Errorf("show: %v, %v", d, err)
		}
		if _, err := l.Show(ctx, ids[1]); !isDamage(err) {
			t.Errorf("show what lies in the tail: %v", err)
		}
		if _, err := l.Checkpoint(ctx); !isDamage(err) {
			t.Errorf("checkpoint: %v", err)
		}
		if err := l.Follow(ctx, Filter{}, gather); !isDamage(err) {
			t.Errorf("follow: %v", err)
		}
	}
}

// wantIDs looks whether the record holds calls, all of which ended.
func wantIDs(t testing.TB, dir string, ids []string) {
	t.Helper()
	l := open(t, dir)
	defer l.Close()
	for _, id := range ids {
		if d, err := l.Show(ctx, id); err != nil || d.Status != Allowed {
			t.Errorf("%s: %v, %v", id, d, err)
		}
	}
}
