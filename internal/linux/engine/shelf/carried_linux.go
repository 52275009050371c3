// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package shelf

import (
	_ "embed"
	"errors"
	"os"
)

// What this binary carries: the engine and the router, packed, and their labels.
var (
	//go:embed caisson-engine.zst
	Engine []byte
	//go:embed caisson-engine.txt
	EngineLabel string
	//go:embed caisson-router.zst
	Router []byte
	//go:embed caisson-router.txt
	RouterLabel string
)

// Kept opens the engine that is kept below a state directory, for who cannot wait
// until that directory has been opened and judged: where the way to it leaves any
// doubt, or there is no engine yet, or a stale one, it is an error, and nothing is made.
func Kept(state string) (*os.File, error) {
	l, err := ParseLabel(EngineLabel)
	if err != nil {
		return nil, err
	}
	f, err := l.below(state)
	if err == nil && Stale(f) {
		f.Close()
		return nil, errors.New("engine: it is to be unpacked anew")
	}
	return f, err
}
