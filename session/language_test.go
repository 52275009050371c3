// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTypescript: a node that cannot read it is told apart, and refused with both
// versions; another one is given the file.
func TestTypescript(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	const needs = "caisson: typescript needs deno, bun, tsx or node 22.6 in the sandbox"
	for version, want := range map[string]string{
		"":        needs + "\n",
		"v8.17.0": needs + ", and node is v8.17.0 there\n", "v18.19.1": needs + ", and node is v18.19.1 there\n",
		"v21.7.3": needs + ", and node is v21.7.3 there\n", "v22.5.1": needs + ", and node is v22.5.1 there\n",
		"v22.6.0": "ran --experimental-strip-types main.ts x\n", "v22.12.0": "ran --experimental-strip-types main.ts x\n",
		"v23.0.0": "ran --experimental-strip-types main.ts x\n", "v30.1.0-pre": "ran --experimental-strip-types main.ts x\n", "odd": "ran --experimental-strip-types main.ts x\n",
	} {
		bin := t.TempDir()
		if version != "" {
			script := "#!" + sh + "\n[ \"$1\" = --version ] && echo " + version + " || echo ran \"$@\"\n"
			if err := os.WriteFile(filepath.Join(bin, "node"), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(sh, append(typescript()[1:], "main.ts", "x")...)
		cmd.Env = []string{"PATH=" + bin}
		out, err := cmd.CombinedOutput()
		if string(out) != want || (cmd.ProcessState.ExitCode() == 127) != (err != nil) {
			t.Errorf("node %s: %q, %v", version, out, err)
		}
	}
}
