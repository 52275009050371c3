// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Lists say when by the clock of who reads them, as those of sandboxes and calls do.
func TestListsAreInLocalTime(t *testing.T) {
	before := time.Local
	t.Cleanup(func() { time.Local = before })
	state := filepath.Join(t.TempDir(), "state")
	printedBy := func(args ...string) string {
		t.Helper()
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a := &app{out: &printed{file: f}, err: os.Stderr}
		if code := a.run(args); code != 0 {
			t.Fatalf("%v: %d", args, code)
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	printedBy("keys", "create", "--state", state)
	printedBy("keys", "create", "--state", state, "--name", "ci")
	printedBy("keys", "revoke", "--state", state, "ci")
	printedBy("approvals", "enroll", "--state", state, "ada")
	for _, args := range [][]string{{"keys", "ls", "--state", state}, {"approvals", "approvers", "--state", state}} {
		time.Local = time.UTC
		utc := printedBy(args...)
		time.Local = time.FixedZone("there", int((14 * time.Hour).Seconds()))
		there := printedBy(args...)
		if utc == there || strings.Count(utc, "\n") != strings.Count(there, "\n") {
			t.Errorf("%v says the same everywhere:\n%s", args, there)
		}
	}
}

// What a key is bound to is said when caisson serve starts: a misspelled name is told here.
func TestKeyThatIsBound(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	for want, flags := range map[string][]string{
		"": nil,
		"caisson serve must be started with --policy nosuch=FILE: else it refuses the key":         {"--policy", "nosuch"},
		"caisson serve must be started with --profile nosuch:FIELD=VALUE: else it refuses the key": {"--profile", "nosuch"},
	} {
		dir := t.TempDir()
		out, err := os.Create(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		notes, err := os.Create(filepath.Join(dir, "err"))
		if err != nil {
			t.Fatal(err)
		}
		defer notes.Close()
		a := &app{out: &printed{file: out}, err: notes}
		if code := a.run(append([]string{"keys", "create", "--state", state}, flags...)); code != 0 {
			t.Fatalf("%v: %d", flags, code)
		}
		said, err := os.ReadFile(notes.Name())
		if err != nil || !strings.Contains(string(said), want) || want == "" && len(said) > 0 {
			t.Errorf("%v: %q, %v, want %q", flags, said, err, want)
		}
	}
}
