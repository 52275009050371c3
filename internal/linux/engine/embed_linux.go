// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package engine

import (
	_ "embed"
	"os"
	"sync"
)

// What this binary carries, packed, each with its label.
var (
	//go:embed caisson-engine.zst
	packedEngine []byte
	//go:embed caisson-engine.txt
	engineLabel string
	//go:embed caisson-router.zst
	packedRouter []byte
	//go:embed caisson-router.txt
	routerLabel string
)

var (
	carried       = carrying(packedEngine, engineLabel)
	carriedRouter = carrying(packedRouter, routerLabel)
)

// carrying is a program that this binary carries, once it is asked for.
func carrying(packed []byte, label string) func() (*Program, error) {
	return sync.OnceValues(func() (*Program, error) {
		l, err := ParseLabel(label)
		if err != nil {
			return nil, err
		}
		return &Program{Label: l, Packed: packed}, nil
	})
}

// Open returns the engine, to be executed through /proc/self/fd: see
// [Program.Open]. The caller closes it.
func Open(stateDir string) (*os.File, error) { return open(carried, stateDir) }

// OpenRouter returns the router's program in the same way.
func OpenRouter(stateDir string) (*os.File, error) { return open(carriedRouter, stateDir) }

func open(carried func() (*Program, error), stateDir string) (*os.File, error) {
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
