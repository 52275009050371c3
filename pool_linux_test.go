// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"context"
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
	for _, level := range []string{"process", "gvisor"} {
		t.Run(level, func(t *testing.T) { tryPool(t, level) })
	}
}

// waitForPool returns when so many wait in a pool.
func waitForPool(t *testing.T, c *caisson.Caisson, pool, n int) {
	t.Helper()
	for end := time.After(2 * time.Minute); c.Pools()[pool].Waiting < n; {
		select {
		case <-end:
			t.Fatalf("%+v", c.Pools())
		case <-time.After(time.Millisecond):
		}
	}
}

func tryPool(t *testing.T, level string) {
	state := filepath.Join(t.TempDir(), "state")
	shell := caisson.Request{Isolation: level, Command: []string{"sh"}}
	python := caisson.Request{Isolation: level, Language: "python"}
	c, err := caisson.Open(t.Context(), caisson.Options{State: state, Pools: []caisson.Pool{{For: shell, Ready: 2}, {For: python, Ready: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(pool, n int) { t.Helper(); waitForPool(t, c, pool, n) }
	for i := range 4 {
		wait(0, 2)
		shell.Command = []string{"sh", "-c", `ls -A /tmp /dev/shm "$HOME" | grep -v :; (sleep 1000 &); echo $N; cat; touch /tmp/x /dev/shm/x x`}
		shell.Env = map[string]string{"N": fmt.Sprint(i)}
		shell.Stdin = strings.NewReader("in\n")
		began := time.Now()
		res, err := c.Run(t.Context(), shell)
		if err != nil || res.Status != sandbox.StatusSuccess || strings.TrimSpace(string(res.Stdout)) != fmt.Sprintf("%d\nin", i) {
			t.Fatalf("%v, %+v: %q", err, res, res.Stdout)
		}
		t.Log(time.Since(began))
	}
	wait(1, 1)
	python.Code = "import sys; print(len(sys.argv), 6 * 7); sys.exit(3)"
	res, err := c.Run(t.Context(), python)
	if err != nil || res.ExitCode == nil || *res.ExitCode != 3 || string(res.Stdout) != "1 42\n" {
		t.Errorf("%v, %+v: %q %q", err, res, res.Stdout, res.Stderr)
	}
	wait(1, 1)
	python.Code, python.Limits = "while True: pass", caisson.Limits{CPUTime: time.Second}
	res, err = c.Run(t.Context(), python)
	if err != nil || res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitCPUTime {
		t.Errorf("%v, %+v: %q", err, res, res.Stderr)
	}
	for i, want := range []int64{4, 2} {
		if s := c.Pools()[i]; s.Taken != want || s.Missed != 0 {
			t.Errorf("%d: %+v", i, s)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "run", "[a-z]*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
