// SPDX-License-Identifier: Apache-2.0

package gitimport

import (
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's own ids
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/caisson-run/caisson/sandbox"
)

// ID is the SHA-1 of an object.
type ID [sha1.Size]byte

// String is the id in hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// path is where a loose object lies below objects.
func (id ID) path() (dir, name string) {
	s := id.String()
	return s[:2], s[2:]
}

// ParseID reads an id of 40 hex digits in lower case.
func ParseID(s string) (id ID, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) || hex.EncodeToString(b) != s {
		return id, fmt.Errorf("%q is no object id", clip(s))
	}
	return ID(b), nil
}

func clip(s string) string { return sandbox.Clip(s, 60) }

// Kind is what an object is.
type Kind string

// The kinds that come over.
const (
	Commit Kind = "commit"
	Tree   Kind = "tree"
	Blob   Kind = "blob"
)

// Bounds of what is taken over.
const (
	MaxObjects = 100_000
	MaxBytes   = 2 << 30 // of all objects

	maxCommit = 1 << 20
	maxTree   = 16 << 20
	maxHeld   = 256 << 20 // bytes of commits and trees, which are held in memory
	maxDepth  = 256       // directories inside each other
	maxHeader = 32        // bytes before the content of a loose object
)

// identify gives the id of an object.
func identify(kind Kind, content []byte) ID {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return ID(h.Sum(nil))
}

// loose reads a loose object: its kind, its size, and its content.
type loose struct {
	kind Kind
	size int64
	io.Reader
	from io.ReadCloser
	z    io.ReadCloser
}

func (l *loose) Close() error { return errors.Join(l.z.Close(), l.from.Close()) }

// openLoose reads the header of a loose object and bounds the rest by the size that it
// says. r is closed with it.
func openLoose(r io.ReadCloser) (*loose, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		r.Close()
		return nil, err
	}
	l := &loose{from: r, z: z}
	if err := l.header(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *loose) header() error {
	var head []byte
	for b := []byte{0}; ; {
		if _, err := io.ReadFull(l.z, b); err != nil {
			return fmt.Errorf("its header: %w", err)
		}
		if b[0] == 0 {
			break
		}
		if head = append(head, b[0]); len(head) > maxHeader {
			return errors.New("its header has no end")
		}
	}
	for i, c := range head {
		if c != ' ' {
			continue
		}
		size, err := strconv.ParseInt(string(head[i+1:]), 10, 64)
		if err != nil || size < 0 || strconv.FormatInt(size, 10) != string(head[i+1:]) {
			return errors.New("its header has no size")
		}
		l.kind, l.size = Kind(head[:i]), size
		l.Reader = io.LimitReader(l.z, size+1) // one more shows that there is more
		return nil
	}
	return errors.New("its header has no kind")
}

// whole reads all of a loose object that is small enough.
func (l *loose) whole(maximum int64) ([]byte, error) {
	if l.size > maximum {
		return nil, fmt.Errorf("it has %d bytes, and at most %d are taken", l.size, maximum)
	}
	b, err := io.ReadAll(l)
	if err == nil && int64(len(b)) != l.size {
		err = errors.New("it has another size than it says")
	}
	return b, err
}
