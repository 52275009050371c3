// SPDX-License-Identifier: Apache-2.0

package persistent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// digestBlock is how much is looked at at once, in bytes. Memory and disks are mostly zeros,
// and much of that is not on the host's disk at all.
const digestBlock = 64 << 10

// digest tells whether files are what they were.
type digest struct {
	// blocks leaves out blocks of zeros; where each of the others is counts.
	blocks bool
	each   func(*os.File) error // done to each file before it is read; nil is nothing
}

// of is the digest of the files in a directory, by name; each is opened once. What is no
// ordinary file has no place there.
func (d *digest) of(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, e := range list {
		if e.IsDir() && e.Name() == filesDir {
			continue
		}
		if err := d.file(h, filepath.Join(dir, e.Name())); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (d *digest) file(h io.Writer, path string) error {
	if info, err := os.Lstat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no ordinary file", filepath.Base(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && d.each != nil {
		err = d.each(f)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %d\n", info.Name(), info.Size())
	if d.blocks {
		return digestBlocks(h, f)
	}
	_, err = io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return err
}

// digestBlocks writes every block of a file that is not zeros, behind where it is and its
// length. What is read depends on how the file lies on the disk, what is written does not.
func digestBlocks(h io.Writer, f *os.File) error {
	block, zeros := make([]byte, digestBlock), make([]byte, digestBlock)
	for at := int64(0); ; at += digestBlock {
		data, err := nextData(f, at)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		at = data &^ (digestBlock - 1)
		n, err := f.ReadAt(block, at)
		if err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(block[:n], zeros[:n]) {
			fmt.Fprintf(h, "%d %d\n", at, n)
			h.Write(block[:n])
		}
		if err == io.EOF {
			return nil
		}
	}
}
