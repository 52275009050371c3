// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package docker

import (
	"context"
	"errors"
	"os"

	"github.com/caisson-run/caisson/sandbox"
)

// errNotHere: an engine on another system runs in a virtual machine, where the
// objects that we hold cannot be told from others.
var errNotHere = errors.New("host files can be shown in a container on Linux only")

// isHere: an engine's containers never are.
func isHere(context.Context, int, []string) bool { return false }

func openPath(name string) (*os.File, error)    { return os.Open(name) }
func fdPath(f *os.File) string                  { return f.Name() }
func nameOf(*os.File) (string, error)           { return "", errNotHere }
func exists(sandbox.Mount, sandbox.Mount) error { return errNotHere }
func mountedBelow(string) string                { return "" }
func shown(int, []string) ([]object, error)     { return nil, errNotHere }
