// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"
)

// What the memory limit kills is told once, and what it killed before is not.
func TestOOMWatch(t *testing.T) {
	dir := t.TempDir()
	none, v1 := filepath.Join(dir, "none"), filepath.Join(dir, "v1")
	count := func(text string) {
		if err := os.WriteFile(v1, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = stderr }()

	count("oom_kill_disable 0\nunder_oom 0\n") // Linux before 4.13
	if newOOMWatch([]string{none, v1}) != nil {
		t.Error("there is a watch where nothing counts")
	}
	(*oomWatch)(nil).look()
	count("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
	watch := newOOMWatch([]string{none, v1})
	if watch == nil {
		t.Fatal("there is no watch")
	}
	watch.look()
	for _, text := range []string{"oom_kill x\n", "", "oom_kill 3\n", "oom_kill 4\n"} {
		count(text)
		watch.look()
	}
	w.Close()
	lines := bufio.NewScanner(r)
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
	}
	if len(got) != 1 || got[0] != OOMLine {
		t.Errorf("it says %q", got)
	}
}
