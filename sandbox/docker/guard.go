// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"os"
	"path/filepath"

	"github.com/caisson-run/caisson/sandbox"
)

// object is a file or directory, whatever it is called.
type object struct{ dev, ino uint64 }

// socketGuard knows the engine's socket and every directory that leads to it.
// Code that has one of them inside a sandbox has the engine, and with it the
// host. The road refuses these long before; this is the last look.
type socketGuard map[object]string

// newSocketGuard looks at where the engine listens.
func newSocketGuard(a address) (socketGuard, error) {
	g := socketGuard{}
	if !a.local() {
		return g, nil
	}
	real, err := filepath.EvalSymlinks(a.addr)
	if err != nil {
		return nil, &sandbox.Error{Op: "engine " + a.String(), Kind: sandbox.ErrUnavailable, Problem: "its socket cannot be looked at", Cause: err}
	}
	for _, p := range []string{a.addr, real} {
		for {
			info, err := os.Stat(p)
			if err != nil {
				return nil, &sandbox.Error{Op: "engine " + a.String(), Kind: sandbox.ErrUnavailable, Problem: "its socket cannot be looked at", Cause: err}
			}
			g[objectOf(info)] = p
			if p == filepath.Dir(p) {
				break
			}
			p = filepath.Dir(p)
		}
	}
	return g, nil
}

// refuse refuses a mount that shows the engine's socket.
func (g socketGuard) refuse(m sandbox.Mount) error {
	info, err := m.Source.Stat()
	if err != nil {
		return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrInvalid, Problem: "it cannot be looked at", Cause: err}
	}
	if p, ok := g[objectOf(info)]; ok {
		return &sandbox.Error{Op: "mount " + m.Name, Kind: sandbox.ErrDenied, Rule: "built-in: control sockets",
			Problem: "it is, or leads to, the socket of the engine that runs the sandbox (" + p + ")",
			Hint:    "mount a directory that does not hold it"}
	}
	return nil
}
