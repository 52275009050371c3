// SPDX-License-Identifier: Apache-2.0

//go:build linux

package caisson_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/changes"
)

// TestMain is this test binary's main: it begins with Reexec, as every
// program that runs sandboxes does.
func TestMain(m *testing.M) {
	caisson.Reexec()
	dir, err := os.MkdirTemp("", "caisson-example")
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("CAISSON_STATE", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func Example() {
	res, err := caisson.Run(context.Background(), caisson.Request{
		Language: "python",
		Code:     "import sys; print(sum(int(line) for line in sys.stdin))",
		Stdin:    strings.NewReader("20\n22\n"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %s", res.Status, res.Stdout)
	// Output: success, 42
}

// What a policy refuses and what a limit ends are results, like a program that failed.
// An error is what caisson could not do; its hint says what to do about it.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "caisson-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "agents.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nlimits: {wall: 5s}\ncommands: {allow: [ls, sleep]}\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	c, err := caisson.Open(context.Background(), caisson.Options{Policy: file})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, r := range []caisson.Request{
		{Command: []string{"ls", "/home"}},
		{Command: []string{"ls", "/nowhere"}},
		{Command: []string{"sleep", "60"}, Limits: caisson.Limits{Wall: 500 * time.Millisecond}},
		{Command: []string{"rm", "-rf", "/"}},
	} {
		res, err := c.Run(context.Background(), r)
		if err != nil {
			log.Fatal(err)
		}
		switch res.Status {
		case sandbox.StatusSuccess:
			fmt.Printf("it printed %s", res.Stdout)
		case sandbox.StatusError:
			fmt.Printf("it failed with exit code %d\n", *res.ExitCode)
		case sandbox.StatusDenied:
			fmt.Println("denied:", res.Reason)
		default:
			fmt.Println("ended:", res.Reason)
		}
	}
	_, err = c.Run(context.Background(), caisson.Request{Command: []string{"ls"}, Isolation: "gvisr"})
	fmt.Println(errors.Is(err, sandbox.ErrInvalid), err, "-", sandbox.Hint(err))
	// Output:
	// it printed user
	// it failed with exit code 2
	// ended: wall time of 500ms is over
	// denied: policy: "rm" in argument 1 is not among the commands that are allowed
	// true isolation "gvisr" is not known - did you mean gvisor?
}

// Output can be had as it is written.
func ExampleRequest_stdout() {
	res, err := caisson.Run(context.Background(), caisson.Request{
		Isolation: "process",
		Language:  "bash",
		Code:      "for i in 1 2 3; do echo step $i; done; exit 4",
		Stdout:    os.Stdout,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, *res.ExitCode)
	// Output:
	// step 1
	// step 2
	// step 3
	// error 4
}

// A sandbox that goes on between calls: files are put in, programs find what others left, and
// files come out.
func ExampleCaisson_Create() {
	ctx := context.Background()
	c, err := caisson.Open(ctx, caisson.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	box, err := c.Create(ctx, caisson.Create{Idle: 10 * time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close()
	if err := box.Files().Write(ctx, "numbers", strings.NewReader("20\n22\n"), 0); err != nil {
		log.Fatal(err)
	}
	for _, code := range []string{
		"open('total', 'w').write(str(sum(int(line) for line in open('numbers')))); print('added')",
		"print('the total is', open('total').read())",
	} {
		res, err := box.Exec(ctx, caisson.Exec{Language: "python", Code: code})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s", res.Status, res.Stdout)
	}
	total, err := box.Files().Read(ctx, "total")
	if err != nil {
		log.Fatal(err)
	}
	defer total.Close()
	if _, err := io.Copy(os.Stdout, total); err != nil {
		log.Fatal(err)
	}
	// Output:
	// success: added
	// success: the total is 42
	// 42
}

// What code changes in a copy-on-write workspace is looked at before the host has it.
func ExampleChangeSets() {
	dir, err := os.MkdirTemp("", "caisson-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "greeting")
	if err := os.WriteFile(file, []byte("hello\n"), 0o666); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	c, err := caisson.Open(ctx, caisson.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	res, err := c.Run(ctx, caisson.Request{
		Command:   []string{"sh", "-c", "rm greeting; echo hello, world >greeting; echo all: >Makefile"},
		Workspace: &caisson.Mount{Source: dir, Access: sandbox.CopyOnWrite}, KeepChanges: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	set, err := c.ChangeSets().Get(res.Changes.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range set.Entries {
		fmt.Println(e.Op, changes.Shown(e.Path), "held back:", len(e.Held) > 0)
	}
	applied, err := c.ChangeSets().Apply(ctx, set.ID, changes.ApplyOptions{Digest: set.Digest})
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("applied %v: %s", applied.Paths, text)
	// Output:
	// add Makefile held back: true
	// change greeting held back: false
	// applied [greeting]: hello, world
}
