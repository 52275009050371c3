// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

const (
	maxPatch = 1 << 20  // bytes of a file that is shown whole: comparing takes time with its lines
	headSize = 64 << 10 // bytes that are shown of a larger one
)

// WritePatch writes what was changed as a unified diff with the files that the host has
// now: all of it, or what is at a path and below. It is to be read, not to be fed to
// patch: characters that are not seen are written as numbers. Of large files the beginning
// is shown; binary files are named.
func (s *Store) WritePatch(w io.Writer, set *Set, path string) error {
	var list []*Entry
	for i := range set.Entries {
		if e := &set.Entries[i]; e.IsBelow(path) {
			list = append(list, e)
		}
	}
	if path != "" && len(list) == 0 {
		return notInSet(path)
	}
	return s.WriteEntries(w, set, list)
}

// IsBelow says that an entry is at a path, or below it. All are below "".
func (e *Entry) IsBelow(path string) bool {
	return path == "" || strings.HasPrefix(e.Path+"/", strings.TrimSuffix(path, "/")+"/")
}

// WriteEntries is WritePatch for some entries of a set.
func (s *Store) WriteEntries(w io.Writer, set *Set, list []*Entry) error {
	lock, err := s.lock(set.ID, lockShared)
	if err != nil {
		return err
	}
	defer lock.Close()
	var h *host
	if root, err := openRoot(set, &ApplyOptions{}); err == nil {
		defer root.Close()
		h = &host{root: root}
	}
	b := bufio.NewWriter(w)
	for _, e := range list {
		if err := s.patch(b, set.ID, e, h); err != nil {
			return err
		}
		if _, err := b.Write(nil); err != nil {
			return err // who reads has had enough
		}
	}
	return b.Flush()
}

// patch writes one entry.
func (s *Store) patch(b *bufio.Writer, id string, e *Entry, h *host) error {
	fmt.Fprintln(b, e.Line())
	for _, why := range e.Held {
		fmt.Fprintf(b, "  held back: %s\n", why)
	}
	if e.Type != File || e.Op == Mode {
		return nil
	}
	before, why, err := s.before(e, h)
	if err != nil {
		return err
	}
	if why != "" {
		fmt.Fprintf(b, "  %s\n", why)
	}
	var after []byte
	if e.hasContent() {
		if after, err = s.after(id, e); err != nil {
			return err
		}
	}
	if len(before) > maxPatch || len(after) > maxPatch {
		before, after = before[:min(len(before), headSize)], after[:min(len(after), headSize)]
		fmt.Fprintf(b, "  too large to show whole: it is cut after %d KiB\n", headSize>>10)
	}
	if bytes.IndexByte(before, 0) >= 0 || bytes.IndexByte(after, 0) >= 0 {
		b.WriteString("  binary\n")
		return nil
	}
	writeDiff(b, Shown(e.Path), before, after)
	return nil
}

// after reads the beginning of a set's file. What follows is read, too: at its end is
// known whether it is what was kept.
func (s *Store) after(id string, e *Entry) ([]byte, error) {
	f, err := s.content(id, e)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPatch+1))
	if err == nil {
		_, err = io.Copy(io.Discard, f)
	}
	return text, err
}

// before reads the host's file. What it cannot read it says, and takes for empty.
func (s *Store) before(e *Entry, h *host) (text []byte, why string, err error) {
	if e.Base == nil || e.Base.Type != File {
		return nil, "", nil
	}
	if h == nil {
		return nil, "the host's workspace cannot be opened: all lines are shown as new", nil
	}
	f, err := h.open(e.Path)
	if err != nil {
		return nil, "the host's file cannot be opened: all lines are shown as new", nil
	}
	defer f.Close()
	if now, err := h.look(e.Path); err != nil || now == nil || now.Inode != e.Base.Inode || now.Size != e.Base.Size || !now.Ctime.Equal(e.Base.Ctime) {
		why = "the host's file has changed since the run"
	}
	text, err = io.ReadAll(io.LimitReader(f, maxPatch+1))
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return nil, "the host's file cannot be read: all lines are shown as new", nil
	}
	return text, why, err
}

// writeDiff writes the diff of two texts, each line as it can be seen.
func writeDiff(b *bufio.Writer, name string, before, after []byte) {
	was := string(before)
	diff, err := udiff.ToUnified("host/"+name, "set/"+name, was, udiff.Lines(was, string(after)), udiff.DefaultContextLines)
	if err != nil {
		fmt.Fprintf(b, "  it cannot be compared: %v\n", err)
		return
	}
	for line := range strings.Lines(diff) {
		text, ended := strings.CutSuffix(line, "\n")
		b.WriteString(shownLine(text))
		if ended {
			b.WriteByte('\n')
		}
	}
	if diff != "" && !strings.HasSuffix(diff, "\n") {
		b.WriteByte('\n')
	}
}
