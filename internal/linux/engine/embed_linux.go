// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package engine

import (
	_ "embed"
	"os"
	"sync"
)

//go:embed caisson-engine.zst
var packed []byte

//go:embed caisson-engine.txt
var label string

var carried = sync.OnceValues(func() (*Program, error) {
	l, err := ParseLabel(label)
	if err != nil {
		return nil, err
	}
	return &Program{Label: l, Packed: packed}, nil
})

// Open returns the engine, to be executed through /proc/self/fd: see
// [Program.Open]. The caller closes it.
func Open(stateDir string) (*os.File, error) {
	p, err := carried()
	if err != nil {
		return nil, err
	}
	return p.Open(stateDir)
}

// GVisor is the version of gVisor's module in it.
func GVisor() string {
	p, err := carried()
	if err != nil {
		return ""
	}
	return p.Label.GVisor
}
