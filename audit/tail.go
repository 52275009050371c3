// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
)

// audit.tail is the end of the chain that is not in the database yet: a program that
// lives for milliseconds appends to a file, with one sync, and does without SQLite.
// Whoever opens the database takes in what it finds there (takeIn) before it reads or
// writes anything.
//
// It begins with a sector that says how far the tail goes, then come frames, one for
// each commit, and zeros. The sector is written without a sync once a frame is durable,
// so after a power cut it may tell of an older state. Hence it is only believed in the
// boot that it was written in, and what follows where it says that the tail ends is
// looked at: all that was ever acknowledged lies there, signed.
//
// Who appends, to either, holds the file's lock (flock) meanwhile.
const (
	tailFile  = "audit.tail"
	tailStart = headSize // where the first frame begins
	// mostTail is how far it may grow, in bytes, before somebody has to take it in:
	// some 700 records. What is begun with it (Appendable) is begun in its first half.
	mostTail = 1 << 20
	// tailRead bounds how much of a file is looked at, and how far it is written.
	tailRead = 64 << 20
	// tailGrows is by how much the file grows at a time, in bytes: to write where a file
	// has its place already costs no change of the file system's own records.
	tailGrows = 64 << 10
)

// errUnsettled says that nothing can be appended to audit.tail before somebody who has
// the database has looked at it.
var errUnsettled = errors.New("audit.tail has to be looked at first")

// syncTail has the disk hold what was written to the tail; there may be none.
func syncTail(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// tailHead is what the sector says. Only Head is signed: who changes the rest without
// the key has others look at the whole, which is what they do at a doubt.
type tailHead struct {
	Open bool       `json:"-"`              // somebody was about to commit to the database
	Boot string     `json:"boot"`           // the boot that it was written in
	Last int64      `json:"last,omitempty"` // where the last frame begins
	End  int64      `json:"end"`            // where it ends
	Base string     `json:"base"`           // what the database's files looked like: fingerprint
	Head Checkpoint `json:"head"`           // of all records, in the database and here
}

// blank says that nothing was ever written there, or that it did not outlive a power cut.
func (t *tailHead) blank() bool { return t.End == 0 }

// opened ends the line of a sector that is Open, where others end with a line feed: one
// byte that each commit to the database changes and changes back.
const opened = '!'

// sector is t as it lies in the file.
func (t *tailHead) sector() ([]byte, error) {
	b, err := padded(t)
	if err == nil && t.Open {
		b[tailStart-1] = opened
	}
	return b, err
}

// parseTailHead reads what sector made, to the byte; a sector of zeros, or none, is
// blank. It checks no signature.
func parseTailHead(b []byte) (t tailHead, ok bool) {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return tailHead{}, true
	}
	if len(b) != tailStart || json.Unmarshal(b[:tailStart-1], &t) != nil || t.End < tailStart {
		return tailHead{}, false
	}
	t.Open = b[tailStart-1] == opened
	again, err := t.sector()
	return t, err == nil && bytes.Equal(again, b)
}
