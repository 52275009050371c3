// SPDX-License-Identifier: Apache-2.0

package begin

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/internal/store"
)

func TestLikely(t *testing.T) {
	for line, want := range map[string]bool{
		"caisson run -- true":                          true,
		"caisson run --memory 64MiB -- true":           true,
		"caisson run --isolation gvisor -- true":       true,
		"caisson run --isolation=gvisor -- true":       true,
		"caisson run script.py":                        true,
		"caisson run -- x --isolation process":         true,
		"caisson run --isolation process -- true":      false,
		"caisson run --isolation=docker:runsc -- true": false,
		"caisson run -it --isolation":                  false,
		"caisson run --help":                           false,
		"caisson run":                                  false,
		"caisson version":                              false,
		"caisson serve run":                            false,
		"caisson":                                      false,
	} {
		if got := likely(strings.Fields(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// It is looked for where it will be.
func TestState(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"CAISSON_STATE": "/srv/caisson"},
		{"XDG_STATE_HOME": "/xdg", "HOME": "/home/ann"},
		{"XDG_STATE_HOME": "xdg", "HOME": "/home/ann"},
		{"HOME": "/home/ann"},
	} {
		for _, name := range []string{"CAISSON_STATE", "XDG_STATE_HOME", "HOME", "XDG_RUNTIME_DIR"} {
			t.Setenv(name, env[name])
		}
		got, want := state(os.Geteuid(), os.Getenv), store.Place(store.Options{})
		if got != want && (got != "" || os.Geteuid() == 0) {
			t.Errorf("%v: %q, and the store looks in %q", env, got, want)
		}
	}
}
