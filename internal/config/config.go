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
	system, err := System(SystemPath)
	if err != nil {
		return nil, err
	}
	o := policy.Options{System: system}
	if file != "" {
		if o.File, err = File(file); err != nil {
			return nil, err
		}
	}
	return policy.New(o)
}

// System reads the system's policy; nil when there is none. A file that
// somebody but root could have written is refused (ErrDenied) and not ignored:
// who relies on a bound must not lose it silently.
func System(path string) (*policy.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "the system's policy cannot be read",
			Hint: "it must be readable by everybody: chmod 0644 " + path, Cause: err}
	}
	defer f.Close()
	if err := trusted(f, path); err != nil {
		return nil, err
	}
	p, err := parse(f, path)
	if err == nil && len(p.Servers) > 0 {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrDenied, Problem: "it has servers, which bound nothing, and this file does nothing else",
			Hint: "move servers to a file that is named with --policy", Rule: p.Place(p.Servers[0].At)}
	}
	return p, err
}

// File reads the policy file that the operator named.
func File(path string) (*policy.File, error) {
	f, err := os.Open(path)
	if err != nil {
		kind, problem := sandbox.ErrInvalid, "the policy file cannot be read"
		if errors.Is(err, fs.ErrNotExist) {
			kind, problem = sandbox.ErrNotFound, "there is no such policy file"
		}
		return nil, &sandbox.Error{Op: path, Kind: kind, Problem: problem, Hint: "write one with: caisson policy init > " + path}
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "it is not a file", Hint: "name a policy file"}
	}
	return parse(f, path)
}

func parse(f *os.File, path string) (*policy.File, error) {
	src, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrUnavailable, Problem: "it cannot be read", Cause: err}
	}
	p, err := policy.Parse(path, src)
	if err != nil {
		return nil, err
	}
	// Paths in it are relative to the file, wherever caisson was called.
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &sandbox.Error{Op: path, Kind: sandbox.ErrInvalid, Problem: "its directory cannot be found", Hint: "give its absolute path", Cause: err}
	}
	p.Dir = filepath.Dir(abs)
	return p, nil
}
