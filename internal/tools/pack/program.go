// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-run/caisson/internal/linux/engine"
)

// packProgram packs a built cmd/caisson-engine or cmd/caisson-router for embedding, with
// a label. The same program gives the same bytes.
func packProgram(program, output string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	label := engine.Label{Digest: hex.EncodeToString(sum[:]), Size: int64(len(data))}
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
	if err := compress(data, zstd.SpeedBestCompression, output); err != nil {
		return err
	}
	return os.WriteFile(output+".txt", []byte(label.String()), 0o644)
}

// packQuick packs a cmd/caisson-guest, which is unpacked often: unpacking it takes half as
// long.
func packQuick(program, output string) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	return compress(data, zstd.SpeedDefault, output)
}

func compress(data []byte, level zstd.EncoderLevel, output string) error {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	return os.WriteFile(output+".zst", z.EncodeAll(data, nil), 0o644)
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
