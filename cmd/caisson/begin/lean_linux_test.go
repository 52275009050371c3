// SPDX-License-Identifier: Apache-2.0

//go:build lean

package begin

import (
	"strings"
	"testing"
)

// What is for the other program is seen before anything was begun, as far as that can be
// seen without knowing the flags.
func TestFits(t *testing.T) {
	for line, want := range map[string]bool{
		"caisson run -- true":                        true,
		"caisson run --isolation process -- x -t":    true,
		"caisson run --memory 1GiB script.py":        true,
		"caisson run -i -- cat":                      true,
		"caisson run --timeout 5s -- true":           true,
		"caisson run -- x --image y":                 true,
		"caisson run --image debian -- true":         false,
		"caisson run --image=debian":                 false,
		"caisson run --policy=p.yaml -- true":        true,
		"caisson run --collect *.png -- true":        false,
		"caisson run -it -- bash":                    false,
		"caisson run -t -- bash":                     false,
		"caisson run -ti -- bash":                    false,
		"caisson run --tty -- bash":                  false,
		"caisson run --tty=false -- bash":            false,
		"caisson run --help":                         false,
		"caisson run -h":                             false,
		"caisson run --env X=1 --image debian":       false,
		"caisson run --isolation gvisor -it -- bash": false,
	} {
		if got := fits(strings.Fields(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// Where nothing is kept yet, or nobody has looked, it is the other program that sees to it.
func TestReady(t *testing.T) {
	for _, level := range []string{"gvisor", "process", "docker", ""} {
		for _, state := range []string{t.TempDir(), "", "relative", "/dev/null"} {
			if ready(guess{level: level}, state) {
				t.Errorf("%q with a state directory %q", level, state)
			}
		}
	}
}
