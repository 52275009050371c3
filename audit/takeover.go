// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// takeOver moves what an older caisson left in audit.tail into the database, and removes
// the file. It does nothing when there is no such file.
//
// All that the tail holds has to be signed, in order and without a gap; else nothing is
// taken, the file stays, and the error says that the record is damaged. Who was killed
// between the commit and the removal takes over again: records that the database holds
// already have to be the same.
func (l *Log) takeOver(ctx context.Context) error {
	path := l.path(tailFile)
	if !exists(path) {
		return nil
	}
	f, err := holdTail(ctx, path) // a run of the older caisson may be writing
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unavailable(op, err)
	}
	defer f.Close()
	b, err := readTail(f)
	if err != nil {
		return unavailable(op, err)
	}
	err = l.transact(ctx, func(ctx context.Context, _ *sql.Conn, tx querier) (Checkpoint, error) {
		head, err := l.checkHead(ctx, tx)
		if err != nil {
			return head, err
		}
		t := takeover{log: l, tx: tx, stored: head}
		if head, err = t.take(ctx, b); err != nil {
			return head, err
		}
		return head, l.checkCopy(ctx, tx, head)
	})
	if err != nil {
		return err
	}
	return unavailable(op, l.removeTail(f))
}

// openTail is takeOver for a log that is being opened. A tail that is damaged breaks the
// log for writers, and a reader is told that it does not see all.
func (l *Log) openTail(ctx context.Context, readOnly bool) error {
	switch {
	case l.broken != nil:
		l.behind = l.broken
	case readOnly:
		l.behind = l.takeOverToRead(ctx)
	default:
		err := l.takeOver(ctx)
		if !isDamage(err) {
			return err
		}
		l.behind = err
	}
	return nil
}

// takeOverToRead is takeOver for a reader.
func (l *Log) takeOverToRead(ctx context.Context) error {
	w, err := Open(ctx, Options{Dir: l.dir, Now: l.now, Rand: l.rand})
	if err != nil {
		return err
	}
	return errors.Join(w.behind, w.Close())
}

// readTail reads a file to its end, which is bounded.
func readTail(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoTail
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTail+1))
	if err == nil && len(b) > maxTail {
		err = damaged(fmt.Sprintf("audit.tail is longer than %d bytes", maxTail))
	}
	return b, err
}

// errNoTail says that something else is in the place of audit.tail.
var errNoTail = damaged("audit.tail is not a file")

// removeTail overwrites the file and removes it. Retention and redaction promise that
// nothing is left on the disk.
func (l *Log) removeTail(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(f, 0), io.LimitReader(zeros{}, info.Size()))
	return errors.Join(err, f.Sync(), os.Remove(l.path(tailFile)), syncDir(l.dir))
}

// zeros is an endless input.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// takeover is one takeOver in its transaction.
type takeover struct {
	log    *Log
	tx     querier
	stored Checkpoint // the head of the database
}

// take stores what the bytes of a tail hold, and returns the head that covers it.
func (t *takeover) take(ctx context.Context, b []byte) (Checkpoint, error) {
	sector, ok := parseTailSector(b)
	if !ok {
		return t.stored, damaged("audit.tail does not begin as caisson's does")
	}
	end, promised, err := t.promised(ctx, sector)
	if err != nil {
		return t.stored, err
	}
	// before is where the frames have come to; reached is that at the promised end.
	before, reached := t.stored, t.stored
	at := min(int64(tailStart), int64(len(b)))
	for first := true; ; first = false {
		f, size, ok := parseTailFrame(b[at:], t.log.inst)
		if !ok {
			break // zeros, or a frame that was not written to its end and never acknowledged
		}
		if err := t.frame(ctx, f, before, first); err != nil {
			return t.stored, inFrame(at, err)
		}
		before, at = f.head, at+size
		if at == end {
			reached = before
		}
	}
	if promised.Count > t.stored.Count && reached != promised {
		return t.stored, damaged(fmt.Sprintf("what audit.tail holds from byte %d on is not what was appended", at))
	}
	if before.Count <= t.stored.Count {
		return t.stored, nil
	}
	return before, storeHead(ctx, t.tx, before)
}

// promised is the head that the sector promises, and where the frames up to it end. A
// head that the database has come to promises nothing more.
func (t *takeover) promised(ctx context.Context, s tailSector) (end int64, head Checkpoint, err error) {
	if s.Head.Count == 0 && s.End <= tailStart {
		return tailStart, t.stored, nil
	}
	if s.Head.Installation != t.log.inst || !t.log.valid(s.Head) {
		return 0, head, damaged("audit.tail holds a head that is not signed with this key")
	}
	if s.Head.Count > t.stored.Count {
		return s.End, s.Head, nil
	}
	if err := onChain(ctx, t.tx, s.Head); err != nil {
		if isDamage(err) {
			err = damaged(fmt.Sprintf("audit.tail was signed for another record %d than the database holds", s.Head.Count))
		}
		return 0, head, err
	}
	return tailStart, t.stored, nil
}

// frame stores the records of a frame that the database does not hold yet. The first
// frame goes on from any record of the database, each other from the frame before it:
// so no frame is taken that was appended a second time.
func (t *takeover) frame(ctx context.Context, f *tailFrame, before Checkpoint, first bool) error {
	from := f.before()
	switch {
	case first && from.Count < t.stored.Count:
		if err := onChain(ctx, t.tx, from); err != nil {
			return err
		}
	case from.Count != before.Count || from.Link != before.Link:
		return damaged(fmt.Sprintf("it holds record %d, and record %d is the next: records were appended again, or moved", from.Count+1, before.Count+1))
	}
	if !f.chained() || !f.complete() || !t.log.valid(f.head) {
		return damaged("it is not what was signed")
	}
	for i, r := range f.records {
		if r.seq <= t.stored.Count {
			if err := onChain(ctx, t.tx, newHead(t.log.inst, r.seq, r.link(), 0, nil)); err != nil {
				return err
			}
			continue
		}
		if err := insert(ctx, t.tx, []*record{r}); err != nil {
			return taken(err, r)
		}
		if err := keep(ctx, t.tx, f.kept[i]); err != nil {
			return err
		}
	}
	return nil
}

// inFrame says in which frame something is wrong.
func inFrame(at int64, err error) error {
	var d *damage
	if !errors.As(err, &d) {
		return err
	}
	problem, _, _ := strings.Cut(d.err.Problem, tampered)
	return damaged(fmt.Sprintf("the frame of audit.tail at byte %d: %s", at, problem))
}

// taken is what it means that a record could not be stored.
func taken(err error, r *record) error {
	if isConstraint(err) {
		return damaged(fmt.Sprintf("it holds record %d a second time", r.seq))
	}
	return err
}
