// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// audit.head holds the last signed head as one line of JSON in one disk
// sector, which is rewritten in place once its transaction is durable: whole
// for every reader that asks twice, and never ahead of the database. That
// costs no sync; after a power cut the file may be some records behind, which
// is no alarm.
const headSize = 512

// headLine is a checkpoint as it lies in the file.
func headLine(c Checkpoint) ([]byte, error) { return padded(c) }

// padded is v as a line of JSON that fills a sector.
func padded(v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(line) >= headSize {
		return nil, fmt.Errorf("%d bytes are more than a sector", len(line))
	}
	b := append(line, bytes.Repeat([]byte(" "), headSize-len(line))...)
	b[headSize-1] = '\n'
	return b, nil
}

// makeHead makes audit.head unless it is there.
func (l *Log) makeHead(c Checkpoint) error {
	b, err := headLine(c)
	if err != nil {
		return err
	}
	return publish(l.path(headFile), b)
}

var errHeadDamaged = errors.New("audit.head does not hold a head that this key signed")

// readHead returns the head that audit.head holds: os.ErrNotExist when there
// is no file, errHeadDamaged when the file is not what writeHead makes.
func (l *Log) readHead() (Checkpoint, error) {
	f, err := os.Open(l.path(headFile))
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	return l.headIn(f)
}

// headIn is readHead of an open file.
func (l *Log) headIn(f *os.File) (Checkpoint, error) {
	for try := 0; ; try++ {
		b := make([]byte, headSize+1)
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return Checkpoint{}, err
		}
		if c, ok := l.parseHead(b[:n]); ok {
			return c, nil
		}
		// A read may have met another process in the middle of its write.
		if try == 3 {
			return Checkpoint{}, errHeadDamaged
		}
	}
}

// parseHead reads what headLine made, to the byte, and checks its signature. What
// it took last is remembered: each commit reads the file twice.
func (l *Log) parseHead(b []byte) (Checkpoint, bool) {
	if last := l.seen.Load(); last != nil && bytes.Equal(last.line, b) {
		return last.head, true
	}
	var c Checkpoint
	if len(b) != headSize || json.Unmarshal(b, &c) != nil {
		return Checkpoint{}, false
	}
	if again, err := headLine(c); err != nil || !bytes.Equal(again, b) || !l.valid(c) {
		return Checkpoint{}, false
	}
	l.seen.Store(&seenHead{b, c})
	return c, true
}

// seenHead is a line of audit.head that was found good, and what it says. Neither is
// changed.
type seenHead struct {
	line []byte
	head Checkpoint
}

// valid is Checkpoint.valid for this log. The last one that was good is remembered: each commit meets the same head three
// times, and to look costs 50 µs.
func (l *Log) valid(c Checkpoint) bool {
	if good := l.good.Load(); good != nil && *good == c {
		return true
	}
	if !c.valid(l.pub, l.inst) {
		return false
	}
	l.good.Store(&c)
	return true
}

// writeHead puts a head into audit.head, unless a later one is there already:
// between a commit and this another process may have committed too. No lock is
// taken; a head that is lost to such a race comes again with the next commit.
func (l *Log) writeHead(c Checkpoint) error {
	f, err := os.OpenFile(l.path(headFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if there, err := l.headIn(f); err == nil && there.Count >= c.Count {
		return f.Close()
	}
	b, err := headLine(c)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_, err = f.WriteAt(b, 0)
	l.seen.Store(&seenHead{b, c})
	return errors.Join(err, f.Close())
}
