// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Store keeps kernels, each in a directory of its own, which is called by its digest:
//
//	<digest>/vmlinux       the ELF image
//	<digest>/modules.cpio  what a guest loads, in order
//	<digest>/kernel.json   a Kernel
//
// A kernel is written under another name, renamed, and never changed afterwards. A
// Store may be used from many goroutines and processes.
type Store struct{ dir string }

// Dir is what the directory of a Store is called in a state directory.
const Dir = "kernels"

// NewStore is the store in dir, which Import makes.
func NewStore(dir string) *Store { return &Store{dir} }

// Kernel is one that is kept.
type Kernel struct {
	Digest   string    `json:"digest"`            // of all that is kept of it: 64 hex digits
	Version  string    `json:"version"`           // as it says itself: "6.1.0-48-cloud-amd64"
	From     string    `json:"from"`              // the file that it was imported from
	Modules  []string  `json:"modules"`           // that a guest loads, in order
	Drivers  []string  `json:"drivers,omitempty"` // that it has, built in or as modules; nil is not known
	Imported time.Time `json:"imported"`

	dir string
}

// Lacks says that the kernel is not known to have a driver, by its module's name. Of one
// without modules that an older caisson imported it is not known, and taken to have all built in.
func (k *Kernel) Lacks(driver string) bool {
	return len(k.Modules)+len(k.Drivers) > 0 && !slices.Contains(k.Modules, driver) && !slices.Contains(k.Drivers, driver)
}

// Image is the path of the kernel's ELF image.
func (k *Kernel) Image() string { return filepath.Join(k.dir, "vmlinux") }

// ImportOptions say what is imported.
type ImportOptions struct {
	// File is the kernel; empty is the newest /boot/vmlinuz-* whose modules are here.
	File string
	// Modules is its directory of modules, with modules.dep or modules.builtin; empty is
	// /lib/modules/VERSION. Where there is no such directory the kernel itself is looked
	// through for the drivers.
	Modules string
}

// Import reads a kernel and keeps it; the newest import is what machines are booted with.
// Errors are *sandbox.Error: ErrNotFound where there is no such file, ErrInvalid where it
// is no kernel for this machine or lacks a driver, ErrUnavailable where it cannot be kept.
func (s *Store) Import(o ImportOptions) (*Kernel, error) {
	const op = "import kernel"
	if o.File == "" {
		newest, err := newestKernel("/boot", "/lib/modules")
		if err != nil {
			return nil, err
		}
		o.File = newest
	}
	file, err := readBounded(o.File, maxFile)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrNotFound, Problem: "its file cannot be read", Hint: "name a readable file; those in /boot are root's on some distributions", Cause: err}
	}
	image, version, err := Extract(file)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: o.File + ": " + err.Error(), Hint: "name a bzImage (/boot/vmlinuz-*) or a vmlinux of Linux for this machine"}
	}
	modules, drivers, err := modulesOf(o, image, version)
	if err != nil {
		return nil, err
	}
	k := &Kernel{Version: version, From: o.File, Modules: []string{}, Drivers: drivers, Imported: time.Now().UTC().Round(0)}
	var packed bytes.Buffer
	a := &archive{w: &packed}
	a.add("modules", 0o040755, nil)
	for i, m := range modules {
		k.Modules = append(k.Modules, m.name)
		a.add(fmt.Sprintf("modules/%02d-%s.ko", i, m.name), 0o100644, m.content)
	}
	if err := a.end(); err != nil {
		return nil, err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n", len(image))
	sum.Write(image)
	sum.Write(packed.Bytes())
	k.Digest = hex.EncodeToString(sum.Sum(nil))
	if err := s.keep(k, image, packed.Bytes()); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.ErrUnavailable, Problem: "it cannot be kept", Hint: "look whether the state directory is writable and has 100 MB free", Cause: err}
	}
	return k, nil
}

// modulesOf finds the modules of a kernel of that version, and the drivers that it has.
func modulesOf(o ImportOptions, image []byte, version string) (modules []module, drivers []string, err error) {
	dir := o.Modules
	if dir == "" {
		dir = filepath.Join("/lib/modules", version)
		if _, err := os.Stat(filepath.Join(dir, "modules.dep")); errors.Is(err, fs.ErrNotExist) {
			if drivers, err = builtIn(image); err != nil {
				return nil, nil, &sandbox.Error{Op: "import kernel", Kind: sandbox.ErrInvalid, Problem: "no modules are in " + dir + ", and without them " + err.Error(),
					Hint: "say where its modules are: --modules DIR, which has modules.dep; for a kernel that has all built in, modules.builtin is enough"}
			}
			return nil, drivers, nil
		}
	}
	if modules, drivers, err = gather(dir); err != nil {
		return nil, nil, &sandbox.Error{Op: "import kernel", Kind: sandbox.ErrInvalid, Problem: dir + ": " + err.Error(), Hint: "install the kernel's modules, or name their directory with --modules"}
	}
	return modules, drivers, nil
}

func (s *Store) keep(k *Kernel, image, modules []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(s.dir, ".import-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	told, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"vmlinux": image, "modules.cpio": modules, "kernel.json": append(told, '\n')} {
		if err := writeSynced(filepath.Join(temp, name), b); err != nil {
			return err
		}
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return err
	}
	k.dir = filepath.Join(s.dir, k.Digest)
	err = os.Rename(temp, k.dir)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) { // it becomes the newest again
		return os.Rename(filepath.Join(temp, "kernel.json"), filepath.Join(k.dir, "kernel.json"))
	}
	return err
}

// writeSynced writes a file that is whole after a power failure: who finds it trusts it.
func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// List is what is kept, the newest import first.
func (s *Store) List() ([]*Kernel, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []*Kernel
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		k := &Kernel{dir: filepath.Join(s.dir, e.Name())}
		b, err := readBounded(filepath.Join(k.dir, "kernel.json"), 1<<20)
		if err == nil {
			err = json.Unmarshal(b, k)
		}
		if err == nil && k.Digest == e.Name() && len(k.Digest) == 2*sha256.Size {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *Kernel) int {
		return cmp.Or(b.Imported.Compare(a.Imported), strings.Compare(a.Digest, b.Digest))
	})
	return all, nil
}

// Newest is the newest import; nil where there is none.
func (s *Store) Newest() (*Kernel, error) {
	all, err := s.List()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// Remove removes a kernel by its digest, of which eight digits are enough where only one
// begins with them. A machine that runs keeps what it has booted.
func (s *Store) Remove(digest string) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	var found []*Kernel
	for _, k := range all {
		if len(digest) >= 8 && strings.HasPrefix(k.Digest, digest) {
			found = append(found, k)
		}
	}
	if len(found) != 1 {
		return &sandbox.Error{Op: "remove kernel " + sandbox.Quoted(digest), Kind: sandbox.ErrNotFound, Problem: fmt.Sprintf("%d kernels are called so", len(found)), Hint: "caisson vm kernel ls has them; give eight digits or more"}
	}
	return os.RemoveAll(found[0].dir)
}

// readBounded reads a regular file.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not make it wait
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is no regular file"))
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it is larger than %d MiB", limit>>20)
	}
	return b, err
}
