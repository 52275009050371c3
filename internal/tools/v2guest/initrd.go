// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// writeInitrd writes the initial ramdisk: this program as /init, the kernel
// modules, and the order in which to load them.
func writeInitrd(img image) error {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := checkStatic(self); err != nil {
		return err
	}
	base := filepath.Join(img.dir, "modules")
	dep, err := os.Open(filepath.Join(base, "modules.dep"))
	if err != nil {
		return err
	}
	defer dep.Close()
	order, err := loadOrder(dep, modules)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	cpio := cpioWriter{w: &buf}
	for _, dir := range []string{"dev", "proc", "sys", "mod", "lower", "rw", "root"} {
		cpio.add(dir, 0o40755, nil)
	}
	cpio.add("init", 0o100755, self)
	var names []string
	for _, path := range order {
		code, err := readModule(filepath.Join(base, path))
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".xz")
		names = append(names, name)
		cpio.add("mod/"+name, 0o100644, code)
	}
	cpio.add("mod/order", 0o100644, []byte(strings.Join(names, "\n")))
	if err := cpio.close(); err != nil {
		return err
	}
	// Another run may be booting from the old one.
	tmp := fmt.Sprintf("%s.%d", img.initrd(), os.Getpid())
	if err := os.WriteFile(tmp, buf.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, img.initrd())
}

// checkStatic: there is no dynamic linker in the ramdisk, and the kernel's
// message about it ("no working init") would send people the wrong way.
func checkStatic(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("v2guest is its guest's init and must be static: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

func readModule(path string) ([]byte, error) {
	if strings.HasSuffix(path, ".xz") {
		return exec.Command("xz", "-dc", path).Output()
	}
	return os.ReadFile(path)
}

// loadOrder reads modules.dep and lists the files of the wanted modules, each
// after what it needs. A name that is not there is built into the kernel.
func loadOrder(dep io.Reader, wanted []string) ([]string, error) {
	needs := map[string][]string{} // file → files
	byName := map[string]string{}
	for sc := bufio.NewScanner(dep); sc.Scan(); {
		file, rest, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: %q", sc.Text())
		}
		needs[file] = strings.Fields(rest)
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		byName[strings.ReplaceAll(name, "-", "_")] = file
	}
	if len(needs) == 0 {
		return nil, errors.New("modules.dep is empty")
	}
	var order []string
	var add func(file string)
	add = func(file string) {
		for _, n := range needs[file] {
			add(n)
		}
		if !slices.Contains(order, file) {
			order = append(order, file)
		}
	}
	for _, name := range wanted {
		if file, ok := byName[name]; ok {
			add(file)
		}
	}
	return order, nil
}

// cpioWriter writes the "newc" form that the kernel unpacks,
// Documentation/driver-api/early-userspace/buffer-format.rst.
type cpioWriter struct {
	w   io.Writer
	ino int
	err error
}

func (c *cpioWriter) add(name string, mode int, content []byte) {
	c.ino++
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	c.write([]byte(head + name + "\x00"))
	c.write(content)
}

// write pads to four bytes, as both halves of an entry are.
func (c *cpioWriter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(append(slices.Clip(b), make([]byte, -len(b)&3)...))
	}
}

func (c *cpioWriter) close() error {
	c.add("TRAILER!!!", 0, nil)
	return c.err
}
