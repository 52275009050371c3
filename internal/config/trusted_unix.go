// SPDX-License-Identifier: Apache-2.0

//go:build unix

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// trusted refuses an open file unless root alone can change it or put another
// in its place: it and the directories above it are root's and not writable by
// others.
func trusted(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "it cannot be examined", Cause: err}
	}
	if !info.Mode().IsRegular() {
		return refuse(path, path, "is not a regular file", "rm "+path)
	}
	if err := roots(path, path, info); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "it cannot be examined", Cause: err}
	}
	for _, p := range []string{path, real} {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			info, err := os.Stat(dir)
			if err != nil {
				return &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "a directory above it cannot be examined", Cause: err}
			}
			if err := roots(path, dir, info); err != nil {
				return err
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

func roots(path, what string, info os.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || st.Uid != 0:
		return refuse(path, what, "does not belong to root", "chown root:root "+what)
	case info.Mode().Perm()&0o022 != 0:
		return refuse(path, what, fmt.Sprintf("can be written by others than root (mode %04o)", info.Mode().Perm()), "chmod go-w "+what)
	}
	return nil
}

func refuse(path, what, problem, hint string) error {
	if what != path {
		problem = what + " " + problem
	} else {
		problem = "the system's policy " + problem
	}
	return &sandbox.Error{Op: path, Kind: sandbox.ErrDenied, Problem: problem, Hint: hint, Rule: "built-in: the system's policy is root's"}
}
