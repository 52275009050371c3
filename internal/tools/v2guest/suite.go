// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// hardStop ends the whole suite of make test-v2.
const hardStop = 80 * time.Minute

// host is one way to be started on a cgroup v2 host.
type host struct {
	init      string
	as        setting
	delegated bool // limits of the cgroup must hold
}

// hosts, those of one guest after another.
var hosts = []host{
	{"tiny", asRoot, true},
	{"tiny", asDelegated, true},
	{"tiny", asBare, false},
	{"systemd", asRoot, true},
	{"systemd", asScope, true},
	{"systemd", asSession, true}, // caisson asks for a scope of its own
}

// check is one thing to try in a host.
type check struct {
	name string
	in   func(host) bool
	// needs is the part of the source that it tests.
	needs string
	run   func(context.Context, *vm, host) error
}

// attempt is one check in one host.
type attempt struct {
	host
	check
}

func (a attempt) String() string { return fmt.Sprintf("%s/%s/%s", a.init, a.as, a.name) }

// attempts are those of every host whose names match part, host by host.
func attempts(checks []check, part *regexp.Regexp) (as []attempt) {
	for _, w := range hosts {
		for _, c := range checks {
			if a := (attempt{w, c}); c.in(w) && part.MatchString(a.String()) {
				as = append(as, a)
			}
		}
	}
	return as
}

// runSuite runs every check in every host, as far as part has it, and says so line
// by line.
func runSuite(ctx context.Context, checks []check, part *regexp.Regexp) error {
	start := time.Now()
	as := attempts(checks, part)
	if len(as) == 0 {
		return fmt.Errorf("no check is called %s", part)
	}
	img, err := makeImage(ctx)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "caisson-v2guest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files, err := buildFiles(ctx, work, as)
	if err != nil {
		return err
	}
	var guest *vm
	ran, failed := 0, 0
	for i, a := range as {
		if i == 0 || a.init != as[i-1].init {
			if guest != nil {
				guest.Close()
			}
			booting := time.Now()
			if guest, err = boot(ctx, img, a.init, files); err != nil {
				return err
			}
			defer guest.Close()
			fmt.Printf("boot\t%s\t%.1fs\n", a.init, time.Since(booting).Seconds())
		}
		if !exists(a.needs) {
			fmt.Printf("NOT RUN\t%s\tthere is no %s yet\n", a, a.needs)
			continue
		}
		ran++
		if !a.try(ctx, guest) {
			failed++
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped: %w", context.Cause(ctx))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, ran)
	}
	fmt.Printf("ok\tcgroup v2: %d checks\t%.0fs\n", ran, time.Since(start).Seconds())
	return nil
}

// try runs it and says how it went.
func (a attempt) try(ctx context.Context, guest *vm) bool {
	t := time.Now()
	err := a.run(ctx, guest, a.host)
	word := "ok"
	if err != nil {
		word = "FAIL"
	}
	fmt.Printf("%s\t%s\t%.1fs\n", word, a, time.Since(t).Seconds())
	if err != nil {
		fmt.Printf("    %s\n", strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "\n    "))
	}
	return err == nil
}

// buildFiles builds what goes into the guest: test binaries, those that are wanted,
// and the product.
func buildFiles(ctx context.Context, dir string, as []attempt) ([]string, error) {
	var files []string
	overlay := filepath.Join(dir, "overlay.json")
	if err := withoutColumns(overlay); err != nil {
		return nil, err
	}
	for _, source := range []string{
		"./internal/linux/cgroup", "./internal/linux/scope", "./internal/linux/idmap", "./internal/linux/hostfacts",
		"./sandbox/gvisor", "./sandbox/process",
	} {
		if !slices.ContainsFunc(as, func(a attempt) bool { return strings.HasPrefix("./"+a.needs+"/", source+"/") }) {
			continue
		}
		name := filepath.Base(source)
		if tests, _ := filepath.Glob(filepath.Join(source, "*_test.go")); len(tests) == 0 {
			continue
		}
		tests := filepath.Join(dir, name+".test")
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", tests, source)
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w\n%s", name, err, out)
		}
		files = append(files, tests)
	}
	wanted := slices.ContainsFunc(as, func(a attempt) bool { return !strings.HasSuffix(a.needs, "/conformance_test.go") })
	if wanted && exists("cmd/caisson") {
		if !exists(product) {
			return nil, fmt.Errorf("there is no %s: run make build first", product)
		}
		deb, err := makePackage(ctx, dir)
		if err != nil {
			return nil, err
		}
		files = append(files, product, deb)
	}
	return files, nil
}

const product = "bin/caisson"

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// outcome is what one command in the guest left.
type outcome struct {
	code           int
	stdout, stderr []byte
}

// String shows it in errors.
func (o outcome) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", o.code, o.stdout, o.stderr)
}

func execIn(ctx context.Context, g *vm, w host, limit time.Duration, argv ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err := g.Run(ctx, Command{As: w.as, Argv: argv}, &stdout, &stderr)
	o := outcome{code, stdout.Bytes(), stderr.Bytes()}
	if err != nil {
		return o, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, o)
	}
	return o, nil
}

// checkHost makes sure that the guest is what the other checks take it for.
func checkHost(ctx context.Context, g *vm, w host) error {
	o, err := execIn(ctx, g, w, time.Minute, "sh", "-c", `id -u; stat -fc %T /sys/fs/cgroup; own=/sys/fs/cgroup$(sed s/0::// /proc/self/cgroup)
mkdir "$own/probe" 2>/dev/null && rmdir "$own/probe" && echo may`)
	if err != nil {
		return err
	}
	want := "0\ncgroup2fs\nmay\n"
	if w.as != asRoot {
		want = "1000\ncgroup2fs\n"
		if w.as == asDelegated || w.as == asScope {
			want += "may\n"
		}
	}
	if string(o.stdout) != want {
		return fmt.Errorf("stdout %q, want %q\n%s", o.stdout, want, o)
	}
	return nil
}

// checkTests runs a compiled test binary. A suite of which less ran than the
// floor, which is known to be there, is a failure, and so is a test that
// skipped itself.
func checkTests(name string, floor int) func(context.Context, *vm, host) error {
	return func(ctx context.Context, g *vm, w host) error {
		o, err := execIn(ctx, g, w, 5*time.Minute, "./"+name+".test", "-test.v", "-test.timeout=4m")
		if err != nil {
			return err
		}
		n := countTests(o.stdout)
		switch {
		case o.code != 0 || n.failed > 0 || !n.finished:
			return errors.New(o.String())
		case n.passed < floor:
			return fmt.Errorf("only %d tests passed, there are at least %d\n%s", n.passed, floor, o)
		case len(n.skipped) > 0:
			return fmt.Errorf("skipped: %s", strings.Join(n.skipped, "\n"))
		}
		return nil
	}
}

// tally is what a test binary's -test.v output says.
type tally struct {
	passed, failed int
	skipped        []string // name, then the reason
	finished       bool     // it said PASS or FAIL at its end
}

// countTests reads top-level results; subtests are indented.
func countTests(out []byte) (n tally) {
	var before string // the line before a SKIP is its reason
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "--- PASS: "):
			n.passed++
		case strings.HasPrefix(line, "--- FAIL: "):
			n.failed++
		case strings.HasPrefix(strings.TrimSpace(line), "--- SKIP: "):
			n.skipped = append(n.skipped, strings.TrimSpace(line)+": "+strings.TrimSpace(before))
		case line == "PASS" || line == "FAIL":
			n.finished = true
		}
		before = line
	}
	return n
}
