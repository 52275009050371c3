// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A survey of /etc reads some dozen directories, most of them full of links,
// and finds what the last one found. So what was looked at is written down in
// the cache, with the times of each directory that was read: while those are
// the same, so are the names and the links in it, and only the rest is looked at
// again. The digest is the same either way. Whatever differs otherwise, or
// cannot be read, is a survey.

// look is one thing that a survey has looked at.
type look struct {
	name string      // below /etc; "." is /etc itself
	kind byte        // as what it was taken; kindNone is not at all
	read bool        // it is a directory whose names count
	was  [7]uint64   // then: see identity
	in   bool        // it is in the digest
	now  unix.Stat_t // as it was found
}

// identity is what changes with a directory's names.
func identity(st *unix.Stat_t) [7]uint64 {
	return [7]uint64{st.Dev, st.Ino, uint64(st.Mode), uint64(st.Mtim.Sec), uint64(st.Mtim.Nsec), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec)}
}

// settled is how long a directory or a file must have been left alone for its times to
// tell: two changes within one tick of the kernel's clock have the same.
var settled = 2 * time.Second

// notesFile is where looks are kept: for this root and this table.
func (c cache) notesFile(root string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", root)
	for _, e := range etcTable {
		fmt.Fprintf(sum, "%q\n", e.path)
	}
	return filepath.Join(c.dir, ".etc-"+hex.EncodeToString(sum.Sum(nil)[:16]))
}

// recall takes what was looked at before for what is there, if it still is. fd
// is /etc.
func (h *hostTree) recall(fd int, notes []byte) bool {
	looks, ok := parseLooks(notes)
	if !ok {
		return false
	}
	for i := range looks {
		l := &looks[i]
		if unix.Fstatat(fd, l.name, &l.now, unix.AT_SYMLINK_NOFOLLOW) != nil || kindOf(&l.now) != l.kind || l.read && identity(&l.now) != l.was {
			return false
		}
	}
	for i := range looks {
		if l := &looks[i]; l.in && l.read {
			h.mix("/etc/"+l.name, kindDir, &l.now) // on the way to something, too
		} else if l.in {
			h.mix("/etc/"+l.name, l.kind, &l.now)
		}
	}
	return true
}

// writeNotes keeps what was looked at for the next one. A failure costs that one
// a survey.
func writeNotes(name string, looks []look, now time.Time) {
	for _, l := range looks {
		for _, at := range []time.Time{time.Unix(int64(l.was[3]), int64(l.was[4])), time.Unix(int64(l.was[5]), int64(l.was[6]))} {
			if l.read && at.Add(settled).After(now) {
				return
			}
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), tempPrefix)
	if err != nil {
		return
	}
	_, err = f.Write(formatLooks(looks))
	if errors.Join(err, f.Close()) != nil || os.Rename(f.Name(), name) != nil {
		os.Remove(f.Name())
	}
}

// readNotes returns nil where there are none.
func readNotes(name string) []byte {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	notes, err := io.ReadAll(io.LimitReader(f, maxNotes))
	if err != nil {
		return nil
	}
	return notes
}

const (
	notesMagic = "caisson etc 1\n"
	maxNotes   = 4 << 20
)

// formatLooks and parseLooks: for each look its kind, its flags, its name after
// the name's length, and identity where it was read. A digest of all ends it,
// for a disk that was full.
func formatLooks(looks []look) []byte {
	b := []byte(notesMagic)
	for _, l := range looks {
		flags := byte(0)
		if l.read {
			flags |= 1
		}
		if l.in {
			flags |= 2
		}
		b = append(b, l.kind, flags)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(l.name)))
		b = append(b, l.name...)
		if l.read {
			for _, v := range l.was {
				b = binary.LittleEndian.AppendUint64(b, v)
			}
		}
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func parseLooks(b []byte) ([]look, bool) {
	if len(b) < len(notesMagic)+sha256.Size || string(b[:len(notesMagic)]) != notesMagic {
		return nil, false
	}
	end := len(b) - sha256.Size
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return nil, false
	}
	var looks []look
	for b = b[len(notesMagic):end]; len(b) > 0; {
		if len(b) < 4 {
			return nil, false
		}
		l := look{kind: b[0], read: b[1]&1 != 0, in: b[1]&2 != 0}
		n := int(binary.LittleEndian.Uint16(b[2:]))
		if b = b[4:]; len(b) < n {
			return nil, false
		}
		l.name, b = string(b[:n]), b[n:]
		if l.read {
			if len(b) < 8*len(l.was) {
				return nil, false
			}
			for i := range l.was {
				l.was[i], b = binary.LittleEndian.Uint64(b), b[8:]
			}
		}
		looks = append(looks, l)
	}
	return looks, len(looks) > 0
}
