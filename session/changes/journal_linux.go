// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tempPrefix begins the names that files of the workspace have for a moment. Each is in
// the journal before it is made.
const tempPrefix = ".caisson-apply-"

// journal is what an Apply leaves that ends half way: which entries it was to apply, and
// which names it made. Lines are whole or missing, and on the disk before what they say is
// done: the machine may crash, too.
type journal struct {
	mu      sync.Mutex // for written, and one line after the other
	f       *os.File
	written int // lines

	disk sync.Mutex // held by who waits for the disk
	safe int        // lines that are on it
}

// journalHead is the first line.
type journalHead struct {
	Digest string `json:"digest"`
	Chosen []int  `json:"chosen"` // entries by their index
}

// journalLine is one name. A name without an inode has not been put in place yet.
type journalLine struct {
	Entry int    `json:"entry"`
	Temp  string `json:"temp"`
	New   uint64 `json:"new,omitempty"` // the inode of what takes the entry's place
	Away  bool   `json:"away,omitempty"`
}

// startJournal makes a journal. It is whole before it has its name.
func startJournal(name string, head journalHead) (*journal, error) {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f}
	if err := errors.Join(j.add(head), os.Rename(name+".new", name), syncDir(filepath.Dir(name))); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

func syncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// add adds a line, in one write. It is on the disk afterwards.
func (j *journal) add(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	j.mu.Lock()
	_, err = j.f.Write(append(b, '\n'))
	j.written++
	line := j.written
	j.mu.Unlock()
	if err != nil {
		return err
	}
	return j.save(line)
}

// save has the lines up to one on the disk. Writers that come meanwhile wait, and share the
// next time.
func (j *journal) save(line int) error {
	j.disk.Lock()
	defer j.disk.Unlock()
	if j.safe >= line {
		return nil
	}
	j.mu.Lock()
	written := j.written
	j.mu.Unlock()
	if err := unix.Fdatasync(int(j.f.Fd())); err != nil {
		return err
	}
	j.safe = written
	return nil
}

// readJournal reads a journal; nil is none. The last line may be cut off.
func readJournal(name string, set *Set) (*journalHead, []journalLine, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var head *journalHead
	var lines []journalLine
	for raw := range bytes.SplitAfterSeq(b, []byte("\n")) {
		if !bytes.HasSuffix(raw, []byte("\n")) {
			break
		}
		if head == nil {
			head = &journalHead{}
			if err := json.Unmarshal(raw, head); err != nil || head.Digest != set.Digest {
				return nil, nil, errors.New("the journal is malformed")
			}
			continue
		}
		var l journalLine
		if err := json.Unmarshal(raw, &l); err != nil || l.Entry < 0 || l.Entry >= len(set.Entries) || !strings.HasPrefix(l.Temp, tempPrefix) || strings.Contains(l.Temp, "/") {
			return nil, nil, errors.New("the journal is malformed")
		}
		lines = append(lines, l)
	}
	return head, lines, nil
}
