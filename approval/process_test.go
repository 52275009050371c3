// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// askForever is the other process: it asks, approves, and says what was done.
func askForever(dir string) {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		sub := subject()
		sub.Actor, sub.Argv[0] = "key:"+strconv.Itoa(i), strconv.Itoa(i)
		r, token, err := s.Ask(ctx, wish(sub))
		if err != nil {
			panic(err)
		}
		if _, err := s.Approve(ctx, AtTerminal("test"), r.ID, r.Digest); err != nil {
			panic(err)
		}
		if i%2 == 1 {
			if _, err := s.Use(ctx, token, sub); err != nil {
				panic(err)
			}
		}
		fmt.Println(i, token)
	}
}

// What was answered is known after SIGKILL at any moment: what was used stays
// used, and what was approved can be used, once.
func TestSurvivesSIGKILL(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "APPROVAL_TEST_ASK="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tokens := map[int]string{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, token, _ := strings.Cut(lines.Text(), " ")
		i, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(lines.Text())
		}
		if tokens[i] = token; i == 9 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	s := open(t, dir, nil)
	for i, token := range tokens {
		sub := subject()
		sub.Actor, sub.Argv[0] = "key:"+strconv.Itoa(i), strconv.Itoa(i)
		if _, err := s.Use(t.Context(), token, sub); (err == nil) != (i%2 == 0) {
			t.Errorf("%d: %v", i, err)
		}
		_, err := s.Use(t.Context(), token, sub)
		denied(t, "twice", err, "used already")
	}
	if len(tokens) < 10 {
		t.Errorf("only %d", len(tokens))
	}
}
