// SPDX-License-Identifier: Apache-2.0

// The layers of a container image are applied, one tar stream after
// the other, to a tree in memory; contents of files go to a [Sink].
//
// A layer is hostile until proven otherwise. Nothing in it becomes a path of
// the host: names are split into components, and parents are found node by
// node in the tree ([fstree.Node.Walk]), so that a link leads to another node
// of the same tree or nowhere. What a sandbox has no use for is left out:
// devices, pipes, set-id bits and extended attributes. Everything is bounded
// ([Bounds]), by what was really read and not by what a header says; digests
// of both forms of a layer are checked when it has been read to its end, and
// an image of which one layer is wrong is thrown away whole.

package fstree

import (
	"errors"
	"fmt"

	"github.com/caisson-run/caisson/sandbox"
)

// Bounds are the most that an image may hold. 0 means the default.
type Bounds struct {
	Bytes   int64 // of all files of all layers, expanded: 32 GiB
	Entries int   // of all layers: 1 million
	Depth   int   // directories above a file: 128
	// Ratio is how many times its size a layer may expand to, beyond the first
	// 64 MiB: 200. Real ones are below 20; gzip's limit is 1032, zstd has none.
	Ratio int64
}

const ratioFrom = 64 << 20

func (b Bounds) withDefaults() Bounds {
	if b.Bytes == 0 {
		b.Bytes = 32 << 30
	}
	if b.Entries == 0 {
		b.Entries = 1_000_000
	}
	if b.Depth == 0 {
		b.Depth = 128
	}
	if b.Ratio == 0 {
		b.Ratio = 200
	}
	return b
}

// Sink takes the contents of files, one file after the other.
type Sink interface {
	// Begin starts a file and gives the offset of its contents.
	Begin() (offset int64, err error)
	// Write takes the next bytes of the file.
	Write(p []byte) (int, error)
}

// Left counts what was left out of an image.
type Left struct {
	Devices int `json:"devices"` // device files, pipes, sockets
	SetID   int `json:"setid"`   // files whose set-id bits were dropped
	Xattrs  int `json:"xattrs"`  // files whose extended attributes were dropped
}

// rule names what refuses an image that is hostile.
const rule = "built-in: image layers"

// hostile is the error for a layer that no honest tool makes.
func hostile(format string, args ...any) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf(format, args...),
		Hint: "do not use this image", Rule: rule}
}

// broken is the error for a layer that cannot be read.
func broken(cause error, format string, args ...any) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...),
		Hint: "it is incomplete or damaged: get it again", Cause: cause}
}

// cutOff is the error for a layer that stopped coming.
func cutOff(cause error, n, size int64) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrUnavailable, Problem: fmt.Sprintf("a layer stopped coming after %d of %d bytes", n, size),
		Hint: "check the network and try again", Cause: errors.Join(ErrCutOff, cause)}
}

// ErrCutOff is in the chain of the error for a layer that stopped coming: to
// try again may help.
var ErrCutOff = errors.New("connection cut")

// tooMuch is the error for what is beyond a bound.
func tooMuch(format string, args ...any) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrDenied, Problem: fmt.Sprintf(format, args...),
		Hint: "use a smaller image", Rule: "built-in: size of images"}
}
