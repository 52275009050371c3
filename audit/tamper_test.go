// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caisson-run/caisson/sandbox"
)

// sample makes a small log with every kind of record and closes it: 1 genesis,
// 2–3 a, 4–5 b, 6–7 a refusal, 8 a redaction, 9 a retention, 10 unfinished.
func sample(t testing.TB, dir string) {
	t.Helper()
	l, err := Open(ctx, Options{Dir: dir, Now: clock()})
	must(t, err)
	call(t, l, "a")
	_, all := list(t, l, Filter{})
	b := call(t, l, "b")
	must(t, l.Refuse(ctx, intent("c"), Outcome{Status: Refused, Error: "no"}))
	d, err := l.Show(ctx, b)
	must(t, err)
	must(t, l.Redact(ctx, d.Ending.Stdout.SHA256, "why"))
	_, err = l.Prune(ctx, all[0].Ended.Add(1))
	must(t, err)
	_, err = l.Begin(ctx, intent("d"))
	must(t, err)
	must(t, l.Close())
}

// copyLog copies the files of a closed log.
func copyLog(t testing.TB, from string) string {
	t.Helper()
	to, err := os.MkdirTemp("", "audit-copy-*")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(to) })
	must(t, copyInto(from, to, dbFile, keyFile, headFile))
	return to
}

func copyInto(from, to string, names ...string) error {
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// TestTampering is the matrix of what someone without the key can do to the
// files, and where Verify must point. append is what Begin must do: refuse,
// where its own, cheaper check sees the damage.
func TestTampering(t *testing.T) {
	base := t.TempDir()
	sample(t, base)
	wantOK(t, verify(t, base))
	older := t.TempDir() // the log as it was before the last record
	func() {
		l, err := Open(ctx, Options{Dir: older})
		must(t, err)
		defer l.Close()
		call(t, l, "a")
	}()

	stmt := func(lines ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			db := raw(t, dir)
			for _, line := range lines {
				if _, err := db.Exec(line); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
			must(t, db.Close())
		}
	}
	tests := []struct {
		name   string
		do     func(t *testing.T, dir string)
		seq    int64
		kind   string
		refuse bool
	}{
		{"a body", stmt(`UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'uid:1000', 'uid:1001') AS BLOB) WHERE seq = 4`), 4, "edited", false},
		{"a time", stmt(`UPDATE records SET at = at + 1 WHERE seq = 5`), 5, "edited", false},
		{"a body with its digests computed anew", forge(4, false), 4, "edited", false},
		{"a body and the whole chain after it computed anew", forge(4, true), 4, "edited", true},
		{"the last record computed anew", forge(10, true), 10, "edited", true},
		{"a record in the middle removed", stmt(`DELETE FROM records WHERE seq = 5`), 5, "removed", false},
		{"two records removed", stmt(`DELETE FROM records WHERE seq IN (4, 5)`), 4, "removed", false},
		{"a record removed and the rest moved up", stmt(`DELETE FROM records WHERE seq = 6`,
			`UPDATE records SET seq = -seq WHERE seq > 6`, `UPDATE records SET seq = -seq - 1 WHERE seq < 0`, `UPDATE head SET count = 9`), 6, "edited", true},
		{"the first record removed", stmt(`DELETE FROM records WHERE seq = 1`), 1, "removed", true},
		{"two records swapped", stmt(`UPDATE records SET seq = 99 WHERE seq = 4`, `UPDATE records SET seq = 4 WHERE seq = 6`, `UPDATE records SET seq = 6 WHERE seq = 99`), 4, "edited", false},
		{"a record copied to the end", stmt(`INSERT INTO records SELECT 11, at, entry || 'x', event, prev, body_digest, digest, signature, body FROM records WHERE seq = 10`), 11, "inserted", true},
		{"the last records appended again", stmt(`DROP INDEX records_entry`, again), 11, "inserted", true},
		{"the last records appended again, and the head", stmt(`DROP INDEX records_entry`, again, `UPDATE head SET count = 13`), 11, "edited", true},
		{"the last records appended again, beside an index of other rules", stmt(`DROP INDEX records_entry`, again,
			`CREATE INDEX records_entry ON records (entry, event)`), 0, "database", true},
		{"the last records appended again, beside an index that says it is ours", stmt(`DROP INDEX records_entry`, again,
			`CREATE INDEX records_entry ON records (entry, event)`, `PRAGMA writable_schema = on`,
			`UPDATE sqlite_schema SET sql = 'CREATE UNIQUE INDEX records_entry ON records (entry, event)' WHERE name = 'records_entry'`), 11, "inserted", true},
		{"a record before the first", stmt(`INSERT INTO records SELECT 0, at, entry || 'x', event, prev, body_digest, digest, signature, body FROM records WHERE seq = 10`), 0, "inserted", false},
		{"the end cut off", stmt(`DELETE FROM records WHERE seq = 10`), 10, "cut off", true},
		{"the end cut off and the head with it", stmt(`DELETE FROM records WHERE seq > 8`, `DELETE FROM head`), 0, "head", true},
		{"the end cut off and the count", stmt(`DELETE FROM records WHERE seq > 8`, `UPDATE head SET count = 8`), 0, "head", true},
		{"the head's time", stmt(`UPDATE head SET at = at + 1`), 0, "head", true},
		{"an outcome of another call", stmt(`UPDATE records SET entry = (SELECT entry FROM records WHERE seq = 10) WHERE seq = 5`), 5, "edited", false},
		{"a body dropped as if by retention", stmt(`UPDATE records SET body = NULL WHERE seq = 7`), 7, "removed", false},
		{"a genesis without a body", stmt(`UPDATE records SET body = NULL WHERE seq = 1`), 1, "removed", true},
		{"content removed", stmt(`DELETE FROM blobs WHERE CAST(content AS TEXT) = 'print(d)'`), 10, "content", false},
		{"content changed", stmt(`UPDATE blobs SET content = x'00' WHERE CAST(content AS TEXT) = 'print(d)'`), 10, "content", false},
		{"content added", stmt(`INSERT INTO blobs VALUES (x'6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d', x'00')`), 0, "content", false},
		{"redacted content put back", stmt(`INSERT INTO blobs SELECT unhex(entry), CAST('out of b' AS BLOB) FROM records WHERE seq = 8`), 5, "content", false},
		{"all records removed", stmt(`DELETE FROM records`, `DELETE FROM blobs`, `DELETE FROM head`), 0, "head", true},
		{"a trigger", stmt(`CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM blobs; END`), 0, "database", true},
		{"a table replaced by a view", stmt(`ALTER TABLE blobs RENAME TO b2`, `CREATE VIEW blobs AS SELECT * FROM b2`), 0, "database", true},
		{"an index dropped", stmt(`DROP INDEX records_entry`), 0, "database", true},
		{"audit.head removed", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, headFile))) }, 0, "head", true},
		{"audit.head emptied", func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, headFile), 0)) }, 0, "head", true},
		{"audit.key removed", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, keyFile))) }, 0, "key", true},
		{"audit.key readable by others", func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, keyFile), 0o644)) }, 0, "key", true},
		{"audit.key replaced", func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, keyFile)))
			must(t, makeKey(filepath.Join(dir, keyFile), rand.Reader))
		}, 0, "key", true},
		{"another installation's database", func(t *testing.T, dir string) { must(t, copyInto(older, dir, dbFile)) }, 0, "key", true},
		{"another installation's database and head", func(t *testing.T, dir string) { must(t, copyInto(older, dir, dbFile, headFile)) }, 0, "key", true},
		{"not a database", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, dbFile), bytes.Repeat([]byte("x"), 8192), 0o600))
		}, 0, "open", true},
		{"an empty database", func(t *testing.T, dir string) { must(t, os.Truncate(filepath.Join(dir, dbFile), 0)) }, 0, "open", true},
		{"no database", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, dbFile))) }, 0, "open", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := copyLog(t, base)
			tt.do(t, dir)
			rep := verify(t, dir)
			found := false
			for _, f := range rep.Findings {
				found = found || f.Seq == tt.seq && f.Kind == tt.kind
			}
			if !found {
				t.Errorf("want %q at record %d, got %v", tt.kind, tt.seq, rep.Findings)
			}
			err := appendOne(dir)
			if refused := err != nil; refused != tt.refuse {
				t.Errorf("appending: %v; want refused: %v", err, tt.refuse)
			}
			if err != nil && (!errors.Is(err, sandbox.ErrUnavailable) || sandbox.Hint(err) == "") {
				t.Errorf("appending: %v, want ErrUnavailable with a hint", err)
			}
			if rep := verify(t, dir); rep.OK() {
				t.Error("appending hid the damage")
			}
		})
	}
}

// again appends the last three records a second time, as the next ones.
const again = `INSERT INTO records SELECT seq + 3, at, entry, event, prev, body_digest, digest, signature, body FROM records WHERE seq > 7`

func appendOne(dir string) error {
	l, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	defer l.Close()
	_, err = l.Begin(ctx, intent("x"))
	return err
}

// TestRollback puts older copies back. Without audit.head that is found at once; with it
// only a checkpoint that was kept elsewhere tells.
func TestRollback(t *testing.T) {
	dir := t.TempDir()
	grow := func() Checkpoint {
		l, err := Open(ctx, Options{Dir: dir})
		must(t, err)
		defer l.Close()
		call(t, l, "a")
		c, err := l.Checkpoint(ctx)
		must(t, err)
		return c
	}
	before := grow()
	older := copyLog(t, dir)
	kept := grow()
	wantOK(t, verify(t, dir, before, kept))

	must(t, copyInto(older, dir, dbFile))
	rep := verify(t, dir)
	if len(rep.Findings) != 1 || rep.Findings[0].Seq != 4 || rep.Findings[0].Kind != "cut off" {
		t.Errorf("an older database: %v", rep.Findings)
	}
	if err := appendOne(dir); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("appending to it = %v, want ErrUnavailable", err)
	}
	must(t, copyInto(older, dir, headFile))
	wantOK(t, verify(t, dir)) // the limit that the package comment states
	rep = verify(t, dir, before, kept)
	if len(rep.Findings) != 1 || rep.Findings[0].Seq != 4 || rep.Findings[0].Kind != "cut off" {
		t.Errorf("an older copy of everything, with a checkpoint: %v", rep.Findings)
	}
	// Growing past the checkpoint does not bring the lost records back.
	grow()
	grow()
	if rep := verify(t, dir, kept); rep.OK() {
		t.Error("another chain of the same length passed")
	}
	forged := kept
	forged.Count = 2
	if rep := verify(t, dir, forged); rep.OK() {
		t.Error("a checkpoint that was edited passed")
	}
}

// TestLaggingHead: audit.head behind the database is what a power cut leaves,
// and no alarm; but it does not let the records it has not seen be changed.
func TestLaggingHead(t *testing.T) {
	dir, before := t.TempDir(), t.TempDir()
	must(t, appendOne(dir))
	must(t, copyInto(dir, before, headFile))
	must(t, appendOne(dir))
	must(t, copyInto(before, dir, headFile))
	wantOK(t, verify(t, dir))
	must(t, appendOne(dir))
	wantOK(t, verify(t, dir))

	must(t, copyInto(before, dir, headFile))
	forge(4, false)(t, dir)
	if err := appendOne(dir); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("appending after a forged record = %v, want ErrUnavailable", err)
	}
	if rep := verify(t, dir); rep.OK() {
		t.Error("a forged record passed")
	}
}

// TestEveryByteOfEveryColumn changes each byte of each value in the database,
// and each value to NULL, and Verify must find each. No column is left out.
func TestEveryByteOfEveryColumn(t *testing.T) {
	dir := t.TempDir()
	sample(t, dir)
	db := raw(t, dir)
	db.SetMaxOpenConns(1)
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer l.Close()
	finds := func(what string) {
		t.Helper()
		rep, err := l.Verify(ctx)
		must(t, err)
		if rep.OK() {
			t.Errorf("%s: not found", what)
		}
	}
	changes := 0
	for table, key := range map[string]string{"records": "seq", "blobs": "digest", "head": "one"} {
		for _, column := range columns(t, db, table) {
			for _, id := range values(t, db, fmt.Sprintf("SELECT %s FROM %s ORDER BY 1", key, table)) {
				old := values(t, db, fmt.Sprintf("SELECT %s FROM %s WHERE %s = ?", column, table, key), id)[0]
				for _, changed := range mutations(old) {
					at := id
					if column == key {
						at = changed
					}
					res, err := db.Exec(fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s = ?", table, column, key), changed, id)
					if err != nil {
						continue // the database itself refuses such a value
					}
					if n, _ := res.RowsAffected(); n != 1 {
						t.Fatalf("%s.%s: %d rows", table, column, n)
					}
					changes++
					finds(fmt.Sprintf("%s %v: %s = %.40v", table, id, column, changed))
					_, err = db.Exec(fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s = ?", table, column, key), old, at)
					must(t, err)
				}
			}
		}
	}
	t.Logf("%d changes", changes)
	if changes < 2000 && !raceDetector {
		t.Errorf("only %d changes were tried", changes)
	}
	rep, err := l.Verify(ctx)
	must(t, err)
	wantOK(t, rep)
}

// mutations are a value with each byte changed in turn, shortened, lengthened
// and NULL. Of long values every seventh byte is taken.
func mutations(v any) (list []any) {
	each := func(b []byte, as func([]byte) any) {
		step := 1
		if len(b) > 100 {
			step = 7
		}
		if raceDetector {
			step = max(1, len(b)/3) // it makes SQLite ten times slower, and has nothing to find here
		}
		for i := 0; i < len(b); i += step {
			c := bytes.Clone(b)
			c[i] ^= 1
			list = append(list, as(c))
		}
		list = append(list, as(append(bytes.Clone(b), 'x')), as(bytes.Clone(b[:len(b)-1])))
	}
	switch v := v.(type) {
	case int64:
		for bit := 0; bit < 63; bit++ {
			list = append(list, v^1<<bit)
			if raceDetector {
				bit += 12
			}
		}
		list = append(list, -v)
	case string:
		each([]byte(v), func(b []byte) any { return string(b) })
	case []byte:
		each(v, func(b []byte) any { return b })
	case nil:
		return []any{[]byte("{}")}
	}
	return append(list, nil)
}

func columns(t testing.TB, db *sql.DB, table string) (list []string) {
	t.Helper()
	for _, v := range values(t, db, "SELECT name FROM pragma_table_info('"+table+"')") {
		list = append(list, v.(string))
	}
	return list
}

func values(t testing.TB, db *sql.DB, query string, args ...any) (list []any) {
	t.Helper()
	rows, err := db.Query(query, args...)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var v any
		must(t, rows.Scan(&v))
		list = append(list, v)
	}
	must(t, rows.Err())
	return list
}

// TestAnyByteOfTheFile changes bytes of audit.db itself. Verify must not
// panic, and where it finds nothing, every value must read as before: what
// changed was unused space.
func TestAnyByteOfTheFile(t *testing.T) {
	base := t.TempDir()
	sample(t, base)
	original, err := os.ReadFile(filepath.Join(base, dbFile))
	must(t, err)
	want := dump(t, base)
	if len(want) < 1000 {
		t.Fatalf("a dump of %d bytes", len(want))
	}
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.IntRange(0, len(original)-1).Draw(rt, "at")
		bits := rapid.ByteRange(1, 255).Draw(rt, "bits")
		b := bytes.Clone(original)
		b[at] ^= bits
		dir := copyLog(t, base)
		defer os.RemoveAll(dir)
		must(t, os.WriteFile(filepath.Join(dir, dbFile), b, 0o600))
		if rep := verify(t, dir); rep.OK() && dump(t, dir) != want {
			rt.Errorf("byte %d ^ %#x changed a value, and was not found", at, bits)
		}
	})
}

// dump is all that a log says.
func dump(t testing.TB, dir string) string {
	t.Helper()
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	must(t, err)
	defer l.Close()
	var b strings.Builder
	for _, table := range []string{"records ORDER BY seq", "blobs ORDER BY digest", "head"} {
		rows, err := l.r.Query("SELECT * FROM " + table)
		must(t, err)
		names, err := rows.Columns()
		must(t, err)
		for rows.Next() {
			row := make([]any, len(names))
			to := make([]any, len(names))
			for i := range row {
				to[i] = &row[i]
			}
			must(t, rows.Scan(to...))
			fmt.Fprintf(&b, "%v\n", row)
		}
		must(t, rows.Err())
		rows.Close()
	}
	for r, err := range l.Query(ctx, Filter{OldestFirst: true}) {
		must(t, err)
		fmt.Fprintf(&b, "%s %s %s %q\n", r.ID, r.Time.Format(time.RFC3339Nano), r.Status, r.Command)
	}
	return b.String()
}

// TestTamperedWhileOpen is the same for a log that has been open for long, and keeps
// statements and the last head: each commit looks again.
func TestTamperedWhileOpen(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string){
		"a trigger": func(t *testing.T, dir string) {
			execute(t, dir, `CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM blobs; END`)
		},
		"an index dropped": func(t *testing.T, dir string) { execute(t, dir, `DROP INDEX records_entry`) },
		"the end cut off": func(t *testing.T, dir string) {
			execute(t, dir, `DELETE FROM records WHERE seq = (SELECT max(seq) FROM records)`)
		},
		"the head's time": func(t *testing.T, dir string) { execute(t, dir, `UPDATE head SET at = at + 1`) },
		"the last record's proof": func(t *testing.T, dir string) {
			execute(t, dir, `UPDATE records SET signature = x'00' WHERE seq = (SELECT max(seq) FROM records)`)
		},
		"audit.head edited": func(t *testing.T, dir string) {
			path := filepath.Join(dir, headFile)
			b, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, bytes.Replace(b, []byte(`"count":`), []byte(`"count":1`), 1), 0o600))
		},
		"audit.head removed": func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, headFile))) },
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir)
			for i := range 2 * often {
				call(t, l, fmt.Sprint(i))
			}
			if len(l.known.of) == 0 {
				t.Fatal("no statement is kept")
			}
			do(t, dir)
			if _, err := l.Begin(ctx, intent("later")); err == nil {
				t.Error("it built on that")
			}
		})
	}
}

func execute(t *testing.T, dir, statement string) {
	t.Helper()
	db := raw(t, dir)
	_, err := db.Exec(statement)
	must(t, err)
	must(t, db.Close())
}
