// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package shelf

import (
	_ "embed"
	"os"
)

// The labels of what this binary carries, or caisson's file does: the engine and the router.
var (
	//go:embed caisson-engine.txt
	EngineLabel string
	//go:embed caisson-router.txt
	RouterLabel string
)

// Kept opens the engine that is kept below a state directory, for who cannot wait
// until that directory has been opened and judged: where the way to it leaves any
// doubt, or there is no engine yet, it is an error, and nothing is made.
func Kept(state string) (*os.File, error) { return kept(state, EngineLabel) }

// KeptRouter opens the router's program in the same way.
func KeptRouter(state string) (*os.File, error) { return kept(state, RouterLabel) }

func kept(state, label string) (*os.File, error) {
	l, err := ParseLabel(label)
	if err != nil {
		return nil, err
	}
	return l.below(state)
}
