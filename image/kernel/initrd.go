// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// maxInit is how large the first process's program may be.
const maxInit = 512 << 20

// Initrd is the path of an initial RAM disk for k, in which init is the first process's
// program: that, the console, and k's modules. It is kept in dir, which must exist, for
// the next machine with the same kernel and program, and goes when another one is made and
// none has asked for it for a week. It may be called from many goroutines and processes.
func (k *Kernel) Initrd(init io.ReadSeeker, dir string) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, init); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "initrd-"+k.Digest[:16]+"-"+hex.EncodeToString(sum.Sum(nil)[:16]))
	now := time.Now()
	if err := os.Chtimes(name, now, now); err == nil {
		return name, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := init.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	program, err := io.ReadAll(io.LimitReader(init, maxInit))
	if err != nil {
		return "", err
	}
	modules, err := os.ReadFile(filepath.Join(k.dir, "modules.cpio"))
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".initrd-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) // it is called otherwise when all went well
	defer f.Close()
	a := &archive{w: f}
	a.add("dev", 0o040755, nil)
	a.node("dev/console", 0o020600, 5, 1, nil)
	a.add("init", 0o100755, program)
	err = a.end()
	if err == nil {
		_, err = f.Write(modules)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync() // who finds it trusts it
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	removeUnused(dir, now.Add(-unusedFor))
	return name, err
}

// unusedFor is how long an initial RAM disk is kept that no machine boots from.
const unusedFor = 7 * 24 * time.Hour

// removeUnused removes initial RAM disks that were last asked for before then. What stays
// for an error is looked at again with the next one.
func removeUnused(dir string, then time.Time) {
	for _, pattern := range []string{"initrd-*", ".initrd-*"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.ModTime().Before(then) {
				os.Remove(name)
			}
		}
	}
}
