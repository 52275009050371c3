// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// A sandbox has a network namespace of its own, and no thread of ours is in it,
// whatever became of the sandbox.
func TestThreadsComeHome(t *testing.T) {
	home, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	d, spec := process.New(process.Options{}), fixture(t)
	exec := &sandbox.Exec{Argv: []string{"/bin/sh", "-c", "readlink /proc/self/ns/net"}, Dir: "/tmp"}
	for range 4 {
		var out, wrong bytes.Buffer
		exec.Stdout, exec.Stderr = &out, &wrong
		_, err := d.Run(t.Context(), spec, exec)
		if in := strings.TrimSpace(out.String()); err != nil || in == "" || in == home { // the kernel uses numbers again
			t.Fatalf("%v: it was in %q, we are in %s: %s", err, in, home, wrong.String())
		}
	}
	p, err := d.Prepare(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	unmade := *spec
	unmade.Scratch = []sandbox.Scratch{{Target: "relative"}}
	if _, err := d.Run(t.Context(), &unmade, exec); err == nil {
		t.Fatal("it was made")
	}
	for range 50 { // a thread that has just begun to come home is given the time to
		if away := threadsAway(t, home); len(away) == 0 {
			return
		}
	}
	t.Errorf("threads are in other network namespaces than %s: %v", home, threadsAway(t, home))
}

func threadsAway(t *testing.T, home string) (away []string) {
	names, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if ns, err := os.Readlink(name); err == nil && ns != home {
			away = append(away, name+" "+ns)
		}
	}
	return away
}
