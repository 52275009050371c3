// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/policy"
)

// What README.md shows is what happens.

// blocks are the fenced parts of README.md in one language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return out
}

func TestReadmePolicies(t *testing.T) {
	for _, text := range blocks(t, "yaml") {
		f, err := policy.Parse("/project/caisson.yaml", []byte(text))
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		if _, err := policy.New(policy.Options{File: f}); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestReadmePrograms(t *testing.T) {
	for _, text := range blocks(t, "go") {
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// TestReadmeTour runs each command of the console blocks and compares what it
// prints, both streams together. $PWD and $HOME stand for what they are, and the change
// set's ID for the one that there is.
func TestReadmeTour(t *testing.T) {
	dir, home := tourPlace(t)
	names := strings.NewReplacer(dir, "$PWD", home, "$HOME")
	set, ids := regexp.MustCompile(`caisson changes show ([0-9a-f]{8})`), strings.NewReplacer()
	status, refused := 0, false
	for _, block := range blocks(t, "console") {
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimSuffix(step, "\n"), "\n")
			if command == "echo $?" {
				command = "echo " + strconv.Itoa(status)
			}
			cmd := exec.Command("bash", "-c", ids.Replace(command))
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if here, there := set.FindStringSubmatch(want), set.FindSubmatch(out); here != nil && there != nil {
				ids = strings.NewReplacer(here[1], string(there[1]))
				out = bytes.ReplaceAll(out, there[1], []byte(here[1]))
			}
			if err != nil && cmd.ProcessState == nil {
				t.Fatalf("%s: %v", command, err)
			}
			status = cmd.ProcessState.ExitCode()
			if os.Geteuid() != 0 && bytes.Contains(out, []byte("cannot be enforced on gvisor here")) {
				refused = true // as README says of users without control groups
				break          // the rest of the block is about that limit
			}
			if refused && strings.HasPrefix(command, "caisson audit") {
				continue // there is one record more
			}
			if diff := cmp.Diff(want, strings.TrimSuffix(names.Replace(withoutNotes(out)), "\n")); diff != "" {
				t.Errorf("$ %s (-README +now)\n%s", command, diff)
			}
		}
	}
}

// tourPlace is a directory like a fresh clone's, and a home; caisson is in PATH.
func tourPlace(t *testing.T) (dir, home string) {
	t.Helper()
	binary := os.Getenv("CAISSON")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "caisson")
		if out, err := exec.Command("go", "build", "-o", binary, "./cmd/caisson").CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	dir, home = t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Mkdir(filepath.Join(home, ".ssh"), 0o700),
		os.Mkdir(filepath.Join(home, "bin"), 0o700),
		os.Symlink(binary, filepath.Join(home, "bin", "caisson")),
		os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("examples")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("CAISSON_STATE", filepath.Join(home, "state"))
	t.Setenv("PATH", filepath.Join(home, "bin")+":"+os.Getenv("PATH"))
	return dir, home
}

// withoutNotes drops what only some hosts say: which default limit is off.
func withoutNotes(out []byte) string {
	var kept []string
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte("caisson: limit ")) {
			kept = append(kept, string(line))
		}
	}
	return strings.Join(kept, "")
}
