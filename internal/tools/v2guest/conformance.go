// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// conformanceLimit is for a whole suite on an emulated processor.
const conformanceLimit = 40 * time.Minute

// conformance is what `v2guest conformance` tries. Some of its promises are told
// by the clock (a share of a processor, a deadline), and an emulated processor
// breaks those on a busy machine. So a person reads what this says, and the suite
// does without it.
func conformance() []check {
	// One setting of each kind: the rest differs in how it got its group.
	once := func(w world) bool { return w.init == "tiny" && w.delegated }
	return []check{
		{"process conformance", once, "sandbox/process/conformance_test.go", checkConformance("process", "")},
		{"gvisor conformance", once, "sandbox/gvisor/conformance_test.go", checkConformance("gvisor", "Exit|Limits")},
	}
}

// checkConformance runs a level's conformance suite, or those of its themes
// that rest on control groups: all of gVisor's takes a quarter of an hour on an
// emulated processor. Where CAISSON_LEVELS names the directory for columns of
// docs/levels.md, everything is run and written down.
func checkConformance(level, themes string) func(context.Context, *vm, world) error {
	return func(ctx context.Context, g *vm, w world) error {
		ctx, cancel := context.WithTimeout(ctx, conformanceLimit)
		defer cancel()
		record := os.Getenv("CAISSON_LEVELS")
		env, run := []string{"CI=true"}, "^TestConformance$"
		if record != "" {
			env = append(env, "CAISSON_LEVELS=-")
		} else if themes != "" {
			run += "/^(" + themes + ")$"
		}
		var stdout, stderr bytes.Buffer
		argv := []string{"./" + level + ".test", "-test.v", "-test.run=" + run, "-test.timeout=" + (conformanceLimit - time.Minute).String()}
		code, err := g.Run(ctx, Command{As: w.as, Argv: argv, Env: env}, io.MultiWriter(&stdout, new(chapters)), &stderr)
		o := outcome{code, stdout.Bytes(), stderr.Bytes()}
		switch {
		case err != nil:
			return fmt.Errorf("%w\n%s", err, o)
		case code != 0 || !countTests(o.stdout).finished:
			return errors.New(o.String())
		case record != "":
			return drivertest.Record(record, o.stdout)
		}
		return nil
	}
}

// chapters prints where a suite is, and what has failed: nothing here takes as long.
type chapters struct{ rest string }

func (c *chapters) Write(b []byte) (int, error) {
	c.rest += string(b)
	for {
		line, rest, whole := strings.Cut(c.rest, "\n")
		if !whole {
			return len(b), nil
		}
		c.rest = rest
		if strings.HasPrefix(line, "=== RUN") && strings.Count(line, "/") == 1 || strings.Contains(line, "--- FAIL") {
			fmt.Println(line)
		}
	}
}
