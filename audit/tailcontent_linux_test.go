// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestTailRedacted takes content away that has not been in the database yet.
func TestTailRedacted(t *testing.T) {
	dir, ids := recordWithTail(t)
	l := open(t, dir)
	d, err := l.Show(ctx, ids[1])
	must(t, err)
	must(t, l.Redact(ctx, d.Ending.Stdout.SHA256, "why"))
	must(t, l.Close())
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range names {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		if bytes.Contains(b, []byte("out of a")) {
			t.Errorf("%s still holds it", e.Name())
		}
	}
	// What was redacted is not kept when it comes again, by the tail either.
	id := call(t, openTail(t, dir, nil), "a")
	l = open(t, dir)
	if d, err := l.Show(ctx, id); err != nil || d.Stdout != nil {
		t.Errorf("%q, %v", d.Stdout, err)
	}
	wantOK(t, verify(t, dir))
}

// TestOlderCaisson: one that does not know audit.tail does not write to the record, also
// if it has had it open for long.
func TestOlderCaisson(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	call(t, l, "a")
	tx, err := l.w.BeginTx(ctx, nil)
	must(t, err)
	if err := checkLayout(ctx, tx, 1); err == nil {
		t.Error("it would find nothing")
	}
	// And its record is read, and written to once it has been brought up to date.
	for _, do := range []string{"DROP TABLE tail", "PRAGMA user_version = 1"} {
		_, err := tx.Exec(do)
		must(t, err)
	}
	must(t, tx.Commit())
	must(t, l.Close())
	wantOK(t, verify(t, dir))
	must(t, appendOne(dir))
	wantOK(t, verify(t, dir))
}
