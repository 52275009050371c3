// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// knownSteps are the steps of the template that is built again.
const knownSteps = 10

// knownBuild measures the build of a template whose every step is known. There is nothing
// beside it: what users feel is how long it takes.
func (s *stage) knownBuild(ctx context.Context) row {
	u := s.users[0]
	dir := s.path("template")
	if err := s.templateDir(ctx, dir); err != nil {
		return row{notes: []string{err.Error()}}
	}
	build := timed(func(ctx context.Context) *exec.Cmd { return s.caisson(ctx, u, "template", "build", "bench", dir) })
	var all []took
	for i := range warmUp + s.o.pairs {
		t, err := build(ctx)
		if err != nil {
			return row{notes: []string{err.Error()}}
		}
		if i >= warmUp {
			all = append(all, t)
		}
	}
	return row{who: u.name, ours: millis(walls(all)), goal: "≤ 300 ms", runs: fmt.Sprint(len(all))}
}

// templateDir makes a directory to build from: a shell of this host's, and steps.
func (s *stage) templateDir(ctx context.Context, dir string) error {
	const shell = "/bin/sh"
	out, err := exec.CommandContext(ctx, "ldd", shell).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", shell, err)
	}
	names := []string{shell}
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			names = append(names, word)
		}
	}
	for _, name := range names {
		to := filepath.Join(dir, "root", name)
		b, err := os.ReadFile(name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755)); err == nil {
			err = os.WriteFile(to, b, 0o755)
		}
		if err != nil {
			return err
		}
	}
	text := "FROM scratch\nCOPY root /\n"
	for i := range knownSteps - 1 {
		text += fmt.Sprintf("RUN echo %d >/step-%d\n", i, i)
	}
	return os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644)
}
