// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// A line is on the disk when it has been added: what it says is done only then.
func TestJournalIsOnTheDisk(t *testing.T) {
	j, err := startJournal(filepath.Join(t.TempDir(), journalFile), journalHead{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.f.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := j.add(journalLine{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if j.safe != 51 || j.written != 51 {
		t.Errorf("%d of %d lines are on the disk", j.safe, j.written)
	}
	r, w, err := os.Pipe() // takes lines, and has no disk
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if err := (&journal{f: w}).add(journalLine{}); err == nil {
		t.Error("a line that is not on the disk was added")
	}
}
