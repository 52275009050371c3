// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// What was seen is still known when the tool was killed in the middle of a line, and
// not tried again; what a failed run has seen can be forgotten.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book")
	reopen := func() *book {
		t.Helper()
		b, err := readBook(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	chapter := drivertest.Chapters()[0]
	line := func(name string) string {
		return fmt.Sprintf("\nlevels column: {\"level\":\"some\",\"setting\":\"root\",\"promises\":[{\"name\":%q,\"state\":\"kept\"}]}\n", name)
	}
	empty := reopen()
	promises := empty.Lacks(chapter)
	if skip := skip(&empty.Column, chapter); skip != "" {
		t.Errorf("skip %q of an empty book", skip)
	}
	for _, piece := range strings.SplitAfter("=== RUN\n"+line(promises[0])+line(promises[1]), ",") {
		if _, err := empty.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	torn := reopen()
	if n := len(promises) - len(torn.Lacks(chapter)); n != 1 {
		t.Errorf("%d promises are known, not the 1 that was whole", n)
	}
	if _, err := torn.Write([]byte(line(promises[2]))); err != nil {
		t.Fatal(err)
	}
	b := reopen()
	lacks := b.Lacks(chapter)
	if len(lacks) != len(promises)-2 || lacks[0] != promises[1] {
		t.Errorf("lacks %q", lacks)
	}
	want := "^TestConformance$/" + drivertest.Pattern(promises[0]) + "|^TestConformance$/" + drivertest.Pattern(promises[2])
	if got := skip(&b.Column, chapter); got != want {
		t.Errorf("skip %q, want %q", got, want)
	}
	if _, err := b.Write([]byte(line(promises[1]))); err != nil {
		t.Fatal(err)
	}
	if err := b.forget(); err != nil {
		t.Fatal(err)
	}
	if lacks := reopen().Lacks(chapter); len(lacks) != len(promises)-2 {
		t.Errorf("what was forgotten is known: lacks %q", lacks)
	}
}

// A column that is written down must not change the suite's binary, or else what was
// seen with it would be forgotten.
func TestWithoutColumns(t *testing.T) {
	t.Chdir("../../..")
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := withoutColumns(file); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-overlay", file, "-f", "{{.EmbedFiles}}", "./sandbox/drivertest").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := string(out); got != "[levels/README.md]\n" {
		t.Errorf("the suite has %s in its binary", got)
	}
}
