// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// TestMaxPages fills the database to a bound of its own.
func TestMaxPages(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	var pages int
	must(t, l.w.QueryRow("PRAGMA max_page_count = 24").Scan(&pages))
	var err error
	for i := 0; i < 500 && err == nil; i++ {
		_, err = l.Begin(ctx, intent(fmt.Sprint(i)))
	}
	if !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "full") || sandbox.Hint(err) == "" {
		t.Errorf("Begin on a full database = %v, want ErrUnavailable with a hint", err)
	}
	wantOK(t, verify(t, dir))
}

func TestNewerLayout(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	_, err := l.w.Exec("PRAGMA user_version = 99")
	must(t, err)
	for _, readOnly := range []bool{false, true} {
		if _, err := Open(ctx, Options{Dir: dir, ReadOnly: readOnly}); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("Open = %v, want ErrUnsupported", err)
		}
	}
}

func TestOddDirectoryName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b?c#d%41;é")
	must(t, os.Mkdir(dir, 0o700))
	call(t, open(t, dir), "a")
	wantOK(t, verify(t, dir))
	if _, err := os.Stat(filepath.Join(dir, dbFile)); err != nil {
		t.Error(err)
	}
}
