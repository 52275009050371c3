// SPDX-License-Identifier: Apache-2.0

// Package config finds and reads the policy files that the operator of this
// host wrote: the system's, which bounds everything, and the one that --policy
// names. Nothing else configures caisson: no file of the working directory and
// no variable of the environment can loosen what it does.
package config

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
)

// SystemPath is where the system's policy lies.
const SystemPath = "/etc/caisson/policy.yaml"

// maxRead is more than the policy parser takes, so that it can say so.
const maxRead = 1 << 20

// Policy reads both layers and puts them together. An empty file names no
// policy of the call's own.
func Policy(file string) (*policy.Policy, error) {
	var f *policy.File
	if file != "" {
		var err error
		if f, err = File(file); err != nil {
			return nil, err
		}
	}
	return Over(f)
}

// Preset is a policy that caisson brings along, with paths from dir, which is absolute.
func Preset(name, dir string) (*policy.File, error) {
	text, err := policy.Preset(name)
	if err != nil {
		return nil, err
	}
	f, err := policy.Parse(policy.PresetPrefix+name, text)
	if err == nil {
		f.Dir = dir
	}
	return f, err
}

// Over puts the system's layer over a file that was read; nil is none.
func Over(file *policy.File) (*policy.Policy, error) {
	system, err := System(SystemPath)
	if err != nil {
		return nil, err
	}
	return policy.New(policy.Options{System: system, File: file})
}

// System reads the system's policy; nil when there is none. A file that another
// user than root could have written is refused (ErrDenied) and not ignored: a
// bound must not be lost silently.
func System(path string) (*policy.File, error) {
	f, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "the system's policy cannot be read",
			Hint: "it must be readable by everybody: chmod 0644 " + path, Cause: err}
	}
	if err := trusted(f, path); err != nil {
		f.Close()
		return nil, err
	}
	p, err := parse(f, path)
	if err == nil && len(p.Servers) > 0 {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrDenied, Problem: "it has servers, which bound nothing, and this file does nothing else",
			Hint: "move servers to a file that is named with --policy", Rule: p.Place(p.Servers[0].At)}
	}
	return p, err
}

// open waits for no writer of a pipe and for no device.
func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// File reads the policy file that the operator named. That is a regular file, or a pipe
// that the caller has open, as <(COMMAND) of a shell is one: a pipe with a name has no
// writer, or any.
func File(path string) (*policy.File, error) {
	f, err := open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			e := &sandbox.Error{Op: path, Kind: sandbox.ErrNotFound, Problem: "there is no such policy file",
				Hint: "write one with: caisson policy init > " + path}
			if path == "-" {
				e.Hint = "for standard input name /dev/stdin"
			}
			return nil, e
		}
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "the policy file cannot be read",
			Hint: "name one that you may read", Cause: err}
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "it cannot be examined", Cause: err}
	}
	pipe := info.Mode().Type() == fs.ModeNamedPipe
	if !info.Mode().IsRegular() && !(pipe && files.ByDescriptor(path)) {
		f.Close()
		e := &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "it is not a file", Hint: "name a policy file"}
		if pipe {
			e.Problem, e.Hint = "it is a pipe, which may never have a writer", "name a policy file, or /dev/stdin; a shell's <(COMMAND) is one, too"
		}
		return nil, e
	}
	return parse(f, path)
}

// parse reads f, and leaves it open in what it returns, for who keeps code from changing
// it; with an error it is closed.
func parse(f *os.File, path string) (_ *policy.File, err error) {
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	src, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "it cannot be read", Cause: err}
	}
	p, err := policy.Parse(path, src)
	if err != nil {
		return nil, err
	}
	// Paths in it are relative to the file, wherever caisson was called; where it has
	// no place, to the working directory.
	at := path
	if files.ByDescriptor(path) {
		at = "policy"
	}
	abs, err := filepath.Abs(at)
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "its directory cannot be found", Hint: "give its absolute path", Cause: err}
	}
	p.Dir, p.From.File = filepath.Dir(abs), f
	if p.From.Path, err = files.Absolute(path); err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "its directory cannot be found", Hint: "give its absolute path", Cause: err}
	}
	return p, nil
}
