// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// look reads the sector, and whether something lies behind it. One that is as this
// process left it is not read again.
func (h *heldTail) look() error {
	line, more, err := readSector(h.f)
	if err != nil {
		return err
	}
	h.asLeft = h.line != nil && bytes.Equal(line, h.line)
	if !h.asLeft {
		h.line = line
		if h.says, err = sectorSays(line); err != nil {
			return err
		}
	}
	h.used = more || h.says.End > tailStart || h.says.Boot != boot()
	return nil
}

// readSector reads the sector of a file, and whether a frame follows it.
func readSector(f io.ReaderAt) (line []byte, more bool, err error) {
	b := make([]byte, tailStart+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	return b[:min(n, tailStart)], n > tailStart && b[tailStart] != 0, nil
}

func sectorSays(line []byte) (tailHead, error) {
	says, ok := parseTailHead(line)
	if !ok {
		return says, damagedTail("audit.tail does not begin as caisson's does")
	}
	return says, nil
}

// content is what lies behind the sector.
func (h *heldTail) content() ([]byte, error) {
	info, err := h.f.Stat()
	if err != nil || info.Size() <= tailStart {
		return nil, err
	}
	b := make([]byte, min(info.Size(), tailRead)-tailStart)
	n, err := h.f.ReadAt(b, tailStart)
	if err == io.EOF {
		err = nil
	}
	return b[:n], err
}

// write puts a sector in the place of the one that is there.
func (h *heldTail) write(says tailHead) error {
	b, err := says.sector()
	if err != nil {
		return err
	}
	if _, err := h.f.WriteAt(b, 0); err != nil {
		return err
	}
	h.line, h.says = b, says
	return nil
}

// open says that the database is about to change: should this process be killed then,
// nobody appends to the head that was there before.
func (h *heldTail) open() error {
	if h == nil {
		return nil
	}
	says := h.says
	says.Open, says.End = true, max(says.End, tailStart)
	if len(h.line) < tailStart || h.says.blank() {
		// The file may be new: what is appended has to be found after a power cut.
		return errors.Join(syncDir(h.dir), h.write(says))
	}
	if _, err := h.f.WriteAt([]byte{opened}, tailStart-1); err != nil {
		return err
	}
	h.line, h.says = nil, says
	return nil
}

// settled says that the database holds everything, up to a head, and returns what the
// sector says then, nothing where it does not. What was in the tail is overwritten, for the sake of what retention and
// redaction take away. Where that fails the tail stays open: nobody may append to it.
func (h *heldTail) settled(head Checkpoint) (line []byte, says tailHead) {
	if h == nil {
		return nil, says
	}
	if h.used {
		if h.wipe() != nil {
			return nil, says
		}
		h.used = false
	}
	if h.write(tailHead{Boot: boot(), End: tailStart, Base: fingerprint(h.dir), Head: head}) != nil {
		return nil, says
	}
	return h.line, h.says
}

// current says that nobody has written to the database since the sector was.
func (h *heldTail) current(dir string) bool {
	return h != nil && h.says.current(dir)
}

// renew has the sector say what the database's files look like now. Where that fails
// somebody has to look at them, which harms nobody.
func (h *heldTail) renew(dir string) {
	says := h.says
	says.Base = fingerprint(dir)
	_ = h.write(says)
}

// wipe writes zeros over the frames. The file keeps the place that it has, up to what
// it may need.
func (h *heldTail) wipe() error {
	info, err := h.f.Stat()
	if err != nil {
		return err
	}
	size := min(info.Size(), tailRead)
	zeros := make([]byte, mostTail)
	for at := int64(tailStart); at < size && err == nil; at += int64(len(zeros)) {
		_, err = h.f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
	}
	if info.Size() > tailStart+2*mostTail { // also where the disk has no room for its holes
		err = errors.Join(err, h.f.Truncate(tailStart))
	}
	return err
}

// append writes a frame behind the last one, durably, and then says that it is there.
func (h *heldTail) append(frame []byte, head Checkpoint) error {
	info, err := h.f.Stat()
	if err != nil {
		return err
	}
	says := h.says
	at, end := says.End, says.End+int64(len(frame))
	if end > tailRead {
		return fmt.Errorf("audit.tail does not take a commit of %d bytes", len(frame))
	}
	if end > info.Size() {
		whole := (end + tailGrows - 1) / tailGrows * tailGrows
		frame = append(frame, make([]byte, whole-end)...)
	}
	if _, err := h.f.WriteAt(frame, at); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(h.f.Fd())); err != nil {
		return err
	}
	says.Last, says.End, says.Head = at, end, head
	return h.write(says)
}

// last is the head of the last frame: none where there is no frame, or not that one.
func (h *heldTail) last(installation string) (head Checkpoint, err error) {
	if h.says.Last < tailStart || h.says.Last >= h.says.End || h.says.End > tailRead {
		return Checkpoint{}, nil
	}
	b := make([]byte, h.says.End-h.says.Last)
	if n, err := h.f.ReadAt(b, h.says.Last); err != nil && err != io.EOF {
		return Checkpoint{}, err
	} else if b = b[:n]; err == io.EOF {
		return Checkpoint{}, nil
	}
	if f, n, ok := parseFrame(b, installation); ok && n == int64(len(b)) {
		return f.head, nil
	}
	return Checkpoint{}, nil
}

// goesOn says that something lies where the sector says that the tail ends: a frame
// whose writer was killed, or whose sector was lost when its disk went away and came back
// in the same boot. It may be one that was acknowledged, and nothing is written over it.
func (h *heldTail) goesOn() (bool, error) {
	b := make([]byte, 1)
	_, err := h.f.ReadAt(b, h.says.End)
	if err == io.EOF {
		return false, nil
	}
	return b[0] != 0, err
}

// current says that what is in the tail may be relied on, as far as can be told without
// the key.
func (t *tailHead) current(dir string) bool {
	return !t.blank() && !t.Open && t.Boot != "" && t.Boot == boot() && t.Base == fingerprint(dir) && exists(dir+"/"+dbFile)
}
