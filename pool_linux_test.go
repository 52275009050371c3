// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
)

// A program that runs many snippets of Python has sandboxes wait for them.
func ExamplePool() {
	python := caisson.Request{Isolation: "process", Language: "python"}
	c, err := caisson.Open(context.Background(), caisson.Options{Pools: []caisson.Pool{{For: python, Ready: 2}}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for n := range 3 {
		r := python
		r.Code = fmt.Sprintf("print(2**%d)", 100*n)
		res, err := c.Run(context.Background(), r)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", res.Stdout)
	}
	// Output:
	// 1
	// 1267650600228229401496703205376
	// 1606938044258990275541962092341162602522202993782792835301376
}

func TestPool(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	shell := caisson.Request{Isolation: "process", Command: []string{"sh"}}
	c, err := caisson.Open(t.Context(), caisson.Options{State: state, Pools: []caisson.Pool{{For: shell, Ready: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		for end := time.After(2 * time.Minute); c.Pools()[0].Waiting < 2; {
			select {
			case <-end:
				t.Fatalf("%+v", c.Pools())
			case <-time.After(time.Millisecond):
			}
		}
		shell.Command = []string{"sh", "-c", `ls -A /tmp /dev/shm "$HOME" | grep -v :; (sleep 1000 &); echo $N; cat; touch /tmp/x /dev/shm/x x`}
		shell.Env = map[string]string{"N": fmt.Sprint(i)}
		shell.Stdin = strings.NewReader("in\n")
		res, err := c.Run(t.Context(), shell)
		if err != nil || res.Status != sandbox.StatusSuccess || strings.TrimSpace(string(res.Stdout)) != fmt.Sprintf("%d\nin", i) {
			t.Fatalf("%v, %+v: %q", err, res, res.Stdout)
		}
	}
	if s := c.Pools()[0]; s.Taken != 4 || s.Missed != 0 {
		t.Errorf("%+v", s)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "run", "[a-z]*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPoolOnALevelWithout(t *testing.T) {
	c, err := caisson.Open(t.Context(), caisson.Options{State: filepath.Join(t.TempDir(), "state"), Pools: []caisson.Pool{{For: caisson.Request{Isolation: "gvisor"}}}})
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "gvisor makes no sandboxes ahead") || sandbox.Hint(err) == "" {
		t.Error(err)
	}
}
