// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// KeepBytes is how much of each content is kept: its first 64 KiB.
const KeepBytes = 64 << 10

// Content is what a record holds of a command line, a piece of code or a
// stream: digests. The bytes lie beside the chain and may be redacted.
type Content struct {
	SHA256 string `json:"sha256"` // of all of it, hex
	Size   int64  `json:"size"`   // of all of it, in bytes
	// Kept is the digest of the first KeepBytes, which are kept, when there is
	// more than that; otherwise all of it is kept, under SHA256.
	Kept string `json:"kept,omitempty"`
}

// blob is the digest under which the kept bytes lie; empty when there are none.
func (c *Content) blob() string {
	switch {
	case c == nil || c.Size == 0:
		return ""
	case c.Kept != "":
		return c.Kept
	}
	return c.SHA256
}

// Capture takes content as it comes: an io.Writer that keeps the first
// KeepBytes and the digest of everything. One goroutine at a time uses it.
type Capture struct {
	all  hash.Hash
	size int64
	kept []byte
}

// NewCapture returns an empty Capture.
func NewCapture() *Capture { return &Capture{all: sha256.New()} }

// Captured is a Capture of b.
func Captured(b []byte) *Capture {
	c := NewCapture()
	c.Write(b)
	return c
}

// Write never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.all.Write(p)
	c.size += int64(len(p))
	if room := KeepBytes - len(c.kept); room > 0 {
		c.kept = append(c.kept, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// Kept is the beginning of it, as much as a record keeps; nil for a Capture that is
// nil.
func (c *Capture) Kept() []byte {
	if c == nil {
		return nil
	}
	return c.kept
}

// content is what the record holds; nil for a Capture that is nil.
func (c *Capture) content() *Content {
	if c == nil {
		return nil
	}
	out := &Content{SHA256: hex.EncodeToString(c.all.Sum(nil)), Size: c.size}
	if c.size > int64(len(c.kept)) {
		out.Kept = hex.EncodeToString(sum(c.kept))
	}
	return out
}
