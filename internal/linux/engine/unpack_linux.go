// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// unpack writes the program to w, and compares what it has written with the
// label.
func (p *Program) unpack(w io.Writer) error {
	z, err := zstd.NewReader(bytes.NewReader(p.Packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	defer z.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(z, p.Label.Size+1))
	if err != nil {
		return fmt.Errorf("engine: unpacking: %w", err)
	}
	if n != p.Label.Size || hex.EncodeToString(sum.Sum(nil)) != p.Label.Digest {
		return errors.New("engine: what was unpacked is not what was packed")
	}
	return nil
}
