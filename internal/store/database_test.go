// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/caisson-run/caisson/sandbox"
)

// layouts are the first n of a database's migrations.
func layouts(n int) fs.FS {
	all := []string{"CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB) STRICT", "CREATE TABLE things (n INTEGER) STRICT",
		"INSERT INTO things VALUES (7)"}
	m := fstest.MapFS{}
	for i, text := range all[:n] {
		m["migrations/000"+string(rune('1'+i))+"_x.sql"] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func at(path string, layout int) DatabaseOptions {
	return DatabaseOptions{Path: path, Migrations: layouts(layout), Problem: "things cannot be kept"}
}

func mustOpenDatabase(t *testing.T, o DatabaseOptions) *DB {
	t.Helper()
	d, err := OpenDatabase(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "things ?#%.db")
	first := mustOpenDatabase(t, at(path, 1))
	secret, err := first.Secret(t.Context(), "a")
	if err != nil || len(secret) != 32 {
		t.Fatal(len(secret), err)
	}
	first.Close()
	for range 2 { // what was applied is not applied again
		newer := mustOpenDatabase(t, at(path, 3))
		var n, rows int
		if err := newer.QueryRow("SELECT max(n), count(*) FROM things").Scan(&n, &rows); err != nil || n != 7 || rows != 1 {
			t.Fatal(n, rows, err)
		}
		if again, err := newer.Secret(t.Context(), "a"); err != nil || !bytes.Equal(again, secret) {
			t.Errorf("another secret: %v", err)
		}
		if other, err := newer.Secret(t.Context(), "b"); err != nil || bytes.Equal(other, secret) {
			t.Errorf("the secret of another name: %v", err)
		}
		newer.Close()
	}
	_, err = OpenDatabase(t.Context(), at(path, 2))
	var mine *sandbox.Error
	if !errors.Is(err, sandbox.ErrUnsupported) || !errors.As(err, &mine) || mine.Hint == "" {
		t.Errorf("a newer layout: %v", err)
	}
}

// A file is its owner's from the start, whatever the umask is.
func TestPrivate(t *testing.T) {
	dir := t.TempDir()
	d := mustOpenDatabase(t, at(filepath.Join(dir, "x.db"), 2))
	if _, err := d.Exec("INSERT INTO things VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) < 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, e := range list {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestDurability(t *testing.T) {
	for commits, want := range map[Durability]int{"": 2, Durable: 2, Lazy: 1} { // SQLite's numbers for FULL and NORMAL
		o := at(filepath.Join(t.TempDir(), "x.db"), 1)
		o.Commits = commits
		var n int
		if err := mustOpenDatabase(t, o).QueryRow("PRAGMA synchronous").Scan(&n); err != nil || n != want {
			t.Errorf("%q: synchronous is %d, %v", commits, n, err)
		}
	}
}

// Several that open a new file at once find one layout, and lose no update.
func TestAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	const each, openers = 20, 4
	var all sync.WaitGroup
	for range openers {
		all.Go(func() {
			d, err := OpenDatabase(context.Background(), at(path, 3))
			if err != nil {
				t.Error(err)
				return
			}
			defer d.Close()
			for range each {
				if err := d.Update(context.Background(), increment); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var n int
	if err := mustOpenDatabase(t, at(path, 3)).QueryRow("SELECT n FROM things").Scan(&n); err != nil || n != 7+each*openers {
		t.Errorf("%d, %v", n, err)
	}
}

// increment reads, and writes what it made of it: two at once would lose one if
// the transaction did not take the write lock when it begins.
func increment(tx *sql.Tx) error {
	var n int
	if err := tx.QueryRow("SELECT n FROM things").Scan(&n); err != nil {
		return err
	}
	_, err := tx.Exec("UPDATE things SET n = ?", n+1)
	return err
}

func TestFailed(t *testing.T) {
	_, err := OpenDatabase(t.Context(), at(filepath.Join(t.TempDir(), "missing", "x.db"), 1))
	if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDatabase(t.Context(), at(path, 1)); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("a file that is none: %v", err)
	}
	if got := (&DB{}).Failed("read", nil); got != nil {
		t.Error(got)
	}
}
