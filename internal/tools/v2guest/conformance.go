// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// chapterLimit is for one chapter on an emulated processor that others keep busy.
const chapterLimit = 40 * time.Minute

// conformance is what `v2guest conformance` tries: the conformance suite, a chapter at
// a time. Some of its promises are told by the clock (a share of a processor, a
// deadline), and an emulated processor breaks those on a busy machine. So a person
// reads what this says, and the suite does without it.
//
// On gVisor all of it takes hours. What was seen is kept (book), and not tried again.
func conformance() (all []check) {
	// One setting of each kind: the rest differs in how it got its group.
	once := func(w host) bool { return w.init == "tiny" && w.delegated }
	for _, level := range []string{"process", "gvisor"} {
		needs := "sandbox/" + level + "/conformance_test.go"
		for _, chapter := range drivertest.Chapters() {
			all = append(all, check{level + "/" + chapter, once, needs, checkChapter(level, chapter)})
		}
		all = append(all, check{level + "/column", once, needs, checkColumn(level)})
	}
	return all
}

// checkChapter runs what has not been seen yet of a chapter.
func checkChapter(level, chapter string) func(context.Context, *vm, host) error {
	return func(ctx context.Context, g *vm, w host) error {
		seen, err := openBook(g, level, w.as)
		if err != nil {
			return err
		}
		defer seen.Close()
		before := len(seen.Lacks(chapter))
		if before == 0 {
			fmt.Printf("seen before\t%s\n", seen.path())
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, chapterLimit)
		defer cancel()
		c := Command{As: w.as, Env: []string{"CI=true", "CAISSON_LEVELS=-"}, Argv: []string{
			"./" + level + ".test", "-test.v", "-test.run=^TestConformance$/^" + chapter + "$",
			"-test.skip=" + skip(&seen.Column, chapter), "-test.timeout=" + (chapterLimit - time.Minute).String(),
		}}
		var stdout, stderr bytes.Buffer
		code, err := g.Run(ctx, c, io.MultiWriter(&stdout, seen), &stderr)
		o := outcome{code, stdout.Bytes(), stderr.Bytes()}
		lacks := seen.Lacks(chapter)
		fmt.Printf("%d of %d promises seen\n", before-len(lacks), before)
		switch {
		case err != nil:
			return fmt.Errorf("%w\n%s", err, o)
		case code != 0 && len(lacks) == 0:
			// Every promise was kept, and yet: something is left at the end. So nothing
			// of it counts.
			return errors.Join(errors.New(o.String()), seen.forget())
		case code != 0 || !countTests(o.stdout).finished || len(lacks) > 0:
			return fmt.Errorf("not seen: %q\n%s", lacks, o)
		}
		return nil
	}
}

// withoutColumns writes an overlay for go build that leaves the table's columns out. The
// suite has them in its binary, and a book is about one binary: without this, writing one
// column down would make the tool forget all that it had seen of every other.
func withoutColumns(file string) error {
	names, err := filepath.Glob("sandbox/drivertest/levels/*.json")
	if err != nil {
		return err
	}
	gone := map[string]string{}
	for _, name := range names {
		full, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		gone[full] = "" // no such file
	}
	text, err := json.Marshal(map[string]any{"Replace": gone})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// skip is what -test.skip takes for promises of a chapter that were seen.
func skip(c *drivertest.Column, chapter string) string {
	var patterns []string
	for _, cell := range c.Promises {
		if strings.HasPrefix(cell.Name, chapter+": ") {
			patterns = append(patterns, "^TestConformance$/"+drivertest.Pattern(cell.Name))
		}
	}
	return strings.Join(patterns, "|")
}

// checkColumn makes a column of docs/levels.md of what was seen, where CAISSON_LEVELS
// names the directory for them; otherwise what is there must be true. What was not
// seen is no success, even where the column says so.
func checkColumn(level string) func(context.Context, *vm, host) error {
	return func(_ context.Context, g *vm, w host) error {
		seen, err := openBook(g, level, w.as)
		if err != nil {
			return err
		}
		defer seen.Close()
		lacks := seen.Lacks("")
		if dir := os.Getenv("CAISSON_LEVELS"); dir != "" && len(seen.Promises) > 0 {
			if err := seen.WritePart(dir); err != nil {
				return err
			}
		}
		if len(lacks) > 0 {
			return fmt.Errorf("not seen: %q", lacks)
		}
		note, faults := seen.Check()
		if note != "" {
			fmt.Println(note)
		}
		if len(faults) > 0 {
			return errors.New(strings.Join(faults, "\n"))
		}
		return nil
	}
}
