// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	journalLock   = "lock"
	journalSuffix = ".journal"
	tempName      = ".caisson-"
)

// journalHead is the journal's first line: which workspace it is of, and whose it is.
type journalHead struct {
	Root     string `json:"root"`
	Dev, Ino uint64
	// State is the mark of the directory that the journal was made in. The owners of a
	// journal that was copied hold the original: nothing says whether they live.
	State string `json:"state,omitempty"`
}

// journalLine is one placeholder. Ino is 0 until it was made under Temp.
type journalLine struct {
	Rel  string `json:"rel"`
	Temp string `json:"temp"`
	Dir  bool   `json:"dir,omitempty"`
	Text string `json:"text,omitempty"`
	Dev  uint64 `json:"dev,omitempty"`
	Ino  uint64 `json:"ino,omitempty"`
	// Born is when it was made, in nanoseconds: inode numbers are used again.
	// 0 where the filesystem does not say.
	Born int64 `json:"born,omitempty"`
}

// exclusively runs do while no other process changes the journals.
func exclusively(dir string, do func() error) error {
	f, err := os.OpenFile(filepath.Join(dir, journalLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}

// openJournal opens or makes a journal and says whether no other process uses
// it.
func openJournal(name string) (f *os.File, alone bool, err error) {
	f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, err
	}
	if alone, err = tryLock(f); err != nil {
		f.Close()
		return nil, false, err
	}
	return f, alone, nil
}

// tryLock locks f exclusively unless it is held already.
func tryLock(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// flock is flock(2) without interruptions.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// restart empties a journal.
func restart(f *os.File, head journalHead) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	return appendLine(f, head)
}

// appendLine appends one line to a journal, in one write.
func appendLine(f *os.File, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	return err
}

var errJournal = errors.New("the journal is malformed")

// readJournal reads a journal. The last line may be cut off.
func readJournal(f *os.File) (head journalHead, lines []journalLine, err error) {
	b, err := os.ReadFile(f.Name())
	if err != nil || len(b) == 0 {
		return head, nil, err
	}
	return parseJournal(b)
}

// parseJournal parses a journal's bytes.
func parseJournal(b []byte) (head journalHead, lines []journalLine, err error) {
	for i, raw := range bytes.SplitAfter(b, []byte("\n")) {
		if !bytes.HasSuffix(raw, []byte("\n")) {
			break // cut off, or the empty rest
		}
		if i == 0 {
			if json.Unmarshal(raw, &head) != nil || !path.IsAbs(head.Root) {
				return head, nil, errJournal
			}
			continue
		}
		var l journalLine
		if json.Unmarshal(raw, &l) != nil || !filepath.IsLocal(l.Rel) || !strings.HasPrefix(l.Temp, tempName) || strings.Contains(l.Temp, "/") {
			return head, nil, errJournal
		}
		lines = append(lines, l)
	}
	return head, lines, nil
}
