// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gitimport

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// killer kills its process when the n-th object is read.
type killer struct {
	memory
	n int
}

func (k *killer) Open(id ID) (io.ReadCloser, error) {
	if k.n--; k.n < 0 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return k.memory.Open(id)
}

const killedIn, killedAt = "CAISSON_TEST_KILLED_IN", "CAISSON_TEST_KILLED_AT"

func history() (memory, ID) {
	m := memory{}
	parent := ""
	var tip ID
	for i := range 4 {
		tree := m.put(Tree, entry("100644", "f", m.put(Blob, fmt.Sprint("content ", i))))
		tip = m.commit(tree, parent)
		parent = "parent " + tip.String() + "\n"
	}
	return m, tip
}

// TestKilled: a Write that is killed leaves no branch, and a repository that git has
// nothing against; the next one goes through.
func TestKilled(t *testing.T) {
	m, tip := history()
	if dir := os.Getenv(killedIn); dir != "" {
		p, err := repository(t, dir).Plan(t.Context(), m, tip)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(os.Getenv(killedAt))
		p.from = &killer{m, n}
		t.Fatal(p.Write("agent"))
	}
	for n := range 4 { // a blob for each commit
		dir, r, _ := empty(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), killedIn+"="+dir, killedAt+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if e, ok := err.(*exec.ExitError); !ok || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("killed at %d: %v\n%s", n, err, out)
		}
		fsck(t, dir)
		if refs := strings.TrimSpace(git(t, dir, "for-each-ref")); refs != "" {
			t.Errorf("killed at %d there is %s", n, refs)
		}
		if err := importAll(t, r, m, tip); err != nil {
			t.Fatal(err)
		}
		fsck(t, dir)
		if got := git(t, dir, "rev-list", "--count", "agent"); got != "4" {
			t.Errorf("%s commits", got)
		}
	}
}
