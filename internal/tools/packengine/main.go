// SPDX-License-Identifier: Apache-2.0

// Command packengine packs a built cmd/caisson-engine or cmd/caisson-router for
// embedding: the same program gives the same bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: packengine PROGRAM OUTPUT (makes OUTPUT.zst and OUTPUT.txt)")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "packengine:", err)
		os.Exit(1)
	}
}

func pack(program, output string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	label := shelf.Label{Digest: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	if label.GVisor, err = gvisor(program); err != nil {
		return err
	}
	if old, err := os.ReadFile(output + ".txt"); err == nil && string(old) == label.String() {
		return nil // packing takes seconds
	}
	// The label is there only beside what it is the label of.
	if err := os.Remove(output + ".txt"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if err := os.WriteFile(output+".zst", z.EncodeAll(data, nil), 0o644); err != nil {
		return err
	}
	return os.WriteFile(output+".txt", []byte(label.String()), 0o644)
}

// gvisor is the version of gVisor's module that program was built from.
func gvisor(program string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", err
	}
	for _, m := range info.Deps {
		if m.Path == "gvisor.dev/gvisor" {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Version, nil
		}
	}
	return "", errors.New("there is no gVisor in " + program)
}
