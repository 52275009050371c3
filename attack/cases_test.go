// SPDX-License-Identifier: Apache-2.0

//go:build linux

package attack

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each case is judged somewhere, once, and says what mends it.
func TestEveryCaseIsJudged(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		_, live := judges()[c.ID]
		_, own := scenes()[c.ID]
		if live == own || seen[c.ID] || c.Title == "" || c.Mend == "" {
			t.Errorf("%+v: in the one sandbox %v, in its own %v, twice %v", c, live, own, seen[c.ID])
		}
		seen[c.ID] = true
	}
	if len(seen) != len(judges())+len(scenes()) {
		t.Errorf("%d cases, %d are judged", len(seen), len(judges())+len(scenes()))
	}
}

// A process's name is its own to choose.
func TestStatOfHostileName(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, err := stat(cmd.Process.Pid)
	if err != nil || p.parent != os.Getpid() || p.began == "" {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := os.WriteFile("/proc/self/comm", []byte("a) R 1 1 (b"), 0); err != nil {
		t.Fatal(err)
	}
	me, err := stat(os.Getpid())
	if err != nil || me.parent != os.Getppid() {
		t.Errorf("%+v, %v", me, err)
	}
	before, after, ok := cutLast([]byte("1 (x) y) S 2"), ") ")
	if before != "1 (x) y" || after != "S 2" || !ok {
		t.Errorf("%q %q", before, after)
	}
}

func TestWritable(t *testing.T) {
	for info, want := range map[string]bool{
		"pos:\t0\nflags:\t0100000\n": false, "pos:\t0\nflags:\t0100001\n": true, "flags:\t02\n": true,
		"flags:\t010000001\n": false, "flags:\tx\n": false, "": false, // O_PATH ignores the mode
	} {
		if writable(info) != want {
			t.Errorf("%q: %v", info, !want)
		}
	}
}

func TestContains(t *testing.T) {
	if !contains(t.Context(), strings.NewReader(strings.Repeat("x", 1<<20-3)+"secret"), "secret") {
		t.Error("not found across blocks")
	}
	if contains(t.Context(), strings.NewReader("secre"), "secret") {
		t.Error("found what is not there")
	}
}

// What an interrupted suite looks through has no bound: it has the images of its user.
func TestLooksNoFurtherWhenInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	if contains(ctx, &endless{after: stop}, "secret") {
		t.Error("found what is not there")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := holds(t.Context(), dir, "secret"); got != "a" {
		t.Errorf("found %q", got)
	}
	if got := holds(ctx, dir, "secret"); got != "" {
		t.Errorf("looked at %q", got)
	}
}

// endless is a file that never ends, and interrupts in its third block.
type endless struct {
	after  func()
	blocks int
}

func (e *endless) Read(b []byte) (int, error) {
	if e.blocks++; e.blocks == 3 {
		e.after()
	}
	return len(b), nil
}

// The page about the suite names each letter, and none that is not.
func TestPageNamesTheLetters(t *testing.T) {
	text, err := os.ReadFile("../docs/attack.md")
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]int{}
	for _, c := range Cases() {
		letters[c.ID[:1]]++
	}
	for letter := range letters {
		if !strings.Contains(string(text), "\n| "+letter+" | ") {
			t.Errorf("docs/attack.md says nothing of %s", letter)
		}
	}
}
