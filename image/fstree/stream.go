// SPDX-License-Identifier: Apache-2.0

package fstree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Blob is a layer as it is stored: a tar archive, compressed with gzip or zstd
// or not at all.
type Blob struct {
	// Open gives the bytes. The stream is read once, and closed.
	Open func() (io.ReadCloser, error)
	// Digest of these bytes, and DiffID, the digest of the archive without
	// compression: "sha256:" and 64 hex digits. One that is empty is not known
	// and not checked; at least one must be there.
	Digest, DiffID string
	// Size in bytes; -1 when it is not known.
	Size int64
}

// stream is a layer that is being read: what is stored → digest → expansion →
// digest → archive. The first two steps have a goroutine each.
type stream struct {
	blob  Blob
	src   io.ReadCloser
	ratio int64

	stored *counter // what was read
	plain  io.Reader
	sum    hash.Hash // of plain
	read   int64     // of plain
	err    error     // why the stream ended early

	closers []func()
}

// counter counts and digests what is read, on the way to the expansion.
type counter struct {
	r   io.Reader
	n   int64
	sum hash.Hash
	err error // why nothing more came, other than that it was all
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	c.sum.Write(p[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

func open(b Blob, ratio int64) (*stream, error) {
	if b.Digest == "" && b.DiffID == "" {
		return nil, broken(nil, "a layer has no digest")
	}
	for _, d := range []string{b.Digest, b.DiffID} {
		if d != "" && !IsDigest(d) {
			return nil, broken(nil, "%.80q is no digest", d)
		}
	}
	src, err := b.Open()
	if err != nil {
		return nil, err
	}
	s := &stream{blob: b, src: src, ratio: ratio, sum: sha256.New()}
	s.closers = append(s.closers, func() { src.Close() })
	s.stored = &counter{r: src, sum: sha256.New()}
	if b.Size >= 0 {
		s.stored.r = io.LimitReader(src, b.Size+1) // one more tells that it is too long
	}
	if err := s.expand(ahead(s, s.stored)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Read gives the archive, and stops one that expands without end.
func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.plain.Read(p)
	s.read += int64(n)
	s.sum.Write(p[:n])
	if s.blob.Size >= 0 && s.read > ratioFrom && s.read/s.ratio > s.blob.Size {
		s.err = tooMuch("a layer of %d bytes expands to more than %d times that", s.blob.Size, s.ratio)
		return 0, s.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		// What ran ahead has handed its error over, so it has ended.
		if s.err = broken(err, "a layer cannot be read"); s.stored.err != nil && s.stored.n < s.blob.Size {
			s.err = cutOff(s.stored.err, s.stored.n, s.blob.Size)
		}
		err = s.err
	}
	return n, err
}

// finish reads what comes after the archive's end (padding, and the checksum of
// the compression) and compares the digests.
func (s *stream) finish() error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	s.close() // what ran ahead has ended: its counters are ours now
	if s.blob.Size >= 0 && s.stored.n != s.blob.Size {
		return broken(nil, "a layer is %d bytes long, the manifest says %d", s.stored.n, s.blob.Size)
	}
	for _, c := range []struct {
		want string
		sum  hash.Hash
	}{{s.blob.Digest, s.stored.sum}, {s.blob.DiffID, s.sum}} {
		if got := Digest(c.sum); c.want != "" && got != c.want {
			return broken(nil, "a layer has the digest %s, %s was promised", got, c.want)
		}
	}
	return nil
}

func (s *stream) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}

// Digest is "sha256:" and what h sums up to.
func Digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// IsDigest says whether s is "sha256:" and 64 hex digits.
func IsDigest(s string) bool {
	if len(s) != 7+64 || s[:7] != "sha256:" {
		return false
	}
	for _, c := range s[7:] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// runAhead reads in a goroutine of its own, a few buffers ahead: digests and
// expansion use another processor than the archive.
type runAhead struct {
	full  chan chunk
	empty chan []byte
	now   []byte // what is being read, of buf
	buf   []byte
	err   error
}

type chunk struct {
	buf []byte
	n   int
	err error
}

const (
	aheadChunks = 4
	aheadSize   = 256 << 10
)

// ahead reads r ahead until the stream is closed.
func ahead(s *stream, r io.Reader) io.Reader {
	a := &runAhead{full: make(chan chunk, aheadChunks), empty: make(chan []byte, aheadChunks)}
	for range aheadChunks {
		a.empty <- make([]byte, aheadSize)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	s.closers = append(s.closers, func() {
		close(stop)
		s.src.Close() // wakes a read that waits for the network
		<-stopped
	})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case buf := <-a.empty:
				n, err := fillUp(r, buf)
				select {
				case a.full <- chunk{buf, n, err}:
				case <-stop:
					return
				}
				if err != nil {
					return
				}
			}
		}
	}()
	return a
}

// fillUp is io.ReadFull with the reader's own error; a panic of a
// decompressor is an error, too.
func fillUp(r io.Reader, buf []byte) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the expansion failed: %v", p)
		}
	}()
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

func (a *runAhead) Read(p []byte) (int, error) {
	for len(a.now) == 0 {
		if a.err != nil {
			return 0, a.err
		}
		if a.buf != nil {
			a.empty <- a.buf
		}
		c := <-a.full
		a.buf, a.now, a.err = c.buf, c.buf[:c.n], c.err
	}
	n := copy(p, a.now)
	a.now = a.now[n:]
	return n, nil
}
