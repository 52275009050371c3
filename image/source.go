// SPDX-License-Identifier: Apache-2.0

// Container images are found where they are: in a registry, in an
// OCI image layout, in an archive that docker save wrote. What is found is the
// same for all of them: a digest that pins the image, its configuration, and
// its layers as streams whose digests are known beforehand.
//
// Nothing that an image says is trusted. Documents are bounded and compared
// with their digests before they are read; names in them are digests or are
// looked for, never opened as paths; addresses in them are not visited.

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/sandbox"
)

// Image is an image that was found. Its layers have not been read.
type Image struct {
	// Digest of the manifest; of the configuration where there is no manifest,
	// as in older archives.
	Digest string
	Config Config
	Layers []fstree.Blob // from the lowest to the uppermost
	Size   int64         // of all layers as they are stored, in bytes
}

// Bounds of documents.
const (
	maxDocument = 8 << 20
	maxLayers   = 512
)

// Platform is what images have to be made for: this host's processor.
func Platform() string { return "linux/" + runtime.GOARCH }

// digestOf is "sha256:" and the digest of b.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// invalid is the error for an image that is not as images are.
func invalid(format string, args ...any) error {
	return &sandbox.Error{Op: "read image", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: "check where it comes from, or get it again"}
}

// notFound is the error for an image that is not where it was looked for.
func notFound(hint, format string, args ...any) error {
	return &sandbox.Error{Op: "find image", Kind: sandbox.ErrNotFound, Problem: fmt.Sprintf(format, args...), Hint: hint}
}
