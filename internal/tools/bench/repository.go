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
	"sync"
)

// The tree of the rows about a repository.
const (
	treeDirs  = 500
	treeFiles = 100 // in each
	changed   = 10
)

// repository is a git repository that is worked in on the host and in sandboxes.
type repository struct {
	s    *stage
	made func() error
}

func (s *stage) repository() *repository {
	r := &repository{s: s}
	r.made = sync.OnceValue(r.make)
	return r
}

func (r *repository) dir() string { return r.s.path("repository") }

// make makes the tree, commits it, and puts a program in Go beside it.
func (r *repository) make() error {
	line := strings.Repeat("a line of text that is searched\n", 8)
	for d := range treeDirs {
		dir := filepath.Join(r.dir(), fmt.Sprintf("d%03d", d))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for f := range treeFiles {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d.txt", f)), []byte(line), 0o644); err != nil {
				return err
			}
		}
	}
	const program = "package main\n\nimport (\n\t\"fmt\"\n\t\"net/http\"\n)\n\nfunc main() { fmt.Println(http.StatusText(200)) }\n"
	err := errors.Join(os.WriteFile(filepath.Join(r.dir(), "go.mod"), []byte("module example.com/hello\n\ngo 1.24\n"), 0o644),
		os.WriteFile(filepath.Join(r.dir(), "main.go"), []byte(program), 0o644), os.MkdirAll(r.cache(), 0o755))
	for _, argv := range [][]string{{"git", "init", "-q"}, {"git", "add", "."}, {"git", "-c", "user.name=b", "-c", "user.email=b@example.com", "commit", "-qm", "all"}} {
		if err == nil {
			err = r.host(context.Background(), argv...).Run()
		}
	}
	return err
}

// cache is where go build keeps what it has built.
func (r *repository) cache() string { return r.s.path("go-build") }

func (r *repository) host(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = r.dir(), append(os.Environ(), "GOCACHE="+r.cache(), "GOFLAGS=", "CGO_ENABLED=0")
	return cmd
}

// inside runs argv in a sandbox that has the repository as its copy-on-write workspace.
func (r *repository) inside(ctx context.Context, level string, flags []string, argv ...string) *exec.Cmd {
	args := append([]string{"run", "--isolation", level, "--workspace", r.dir(), "--memory", "2GiB", "--timeout", "10m"}, flags...)
	return r.s.caisson(ctx, r.s.users[0], append(append(args, "--"), argv...)...)
}

// rows are those of a level: the host is the other side, but for the last.
func (r *repository) rows(level string) []bench {
	search := []string{"grep", "-rc", "searched", "."}
	if path, err := exec.LookPath("rg"); err == nil && path == "/usr/bin/rg" {
		search = []string{"rg", "-c", "searched"}
	}
	list := []bench{
		r.besideHost(level, "git status over 50,000 files", nil, "git", "status", "--short"),
		r.besideHost(level, search[0]+" over 50,000 files", nil, search...),
	}
	if goroot, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		root := strings.TrimSpace(string(goroot))
		flags := []string{"--toolchain", root, "--mount", r.cache() + ":/home/user/.cache/go-build:cow", "--env", "CGO_ENABLED=0", "--tmp", "512MiB", "--processes", "512"}
		list = append(list, r.besideHost(level, "go build of a small program, with a cache", flags, filepath.Join(root, "bin/go"), "build", "-o", "/tmp/hello", "."))
	}
	touch := fmt.Sprintf("for i in $(seq 1 %d); do echo changed >d001/f00$((i %% 10)).txt; done", changed)
	return append(list, bench{fmt.Sprintf("%d changes in 50,000 files on %s, kept, beside --discard", changed, level), func(ctx context.Context) row {
		return r.measure(ctx, "≤ 30 ms more", timed(func(ctx context.Context) *exec.Cmd { return r.inside(ctx, level, nil, "sh", "-c", touch) }),
			timed(func(ctx context.Context) *exec.Cmd {
				return r.inside(ctx, level, []string{"--discard"}, "sh", "-c", touch)
			}))
	}})
}

func (r *repository) besideHost(level, what string, flags []string, argv ...string) bench {
	return bench{what + " on " + level + ", beside the host", func(ctx context.Context) row {
		return r.measure(ctx, "", timed(func(ctx context.Context) *exec.Cmd { return r.inside(ctx, level, flags, argv...) }),
			timed(func(ctx context.Context) *exec.Cmd { return r.host(ctx, argv...) }))
	}}
}

// measure takes a quarter of the pairs: these runs take long.
func (r *repository) measure(ctx context.Context, goal string, ours, theirs once) row {
	if err := r.made(); err != nil {
		return row{notes: []string{"the repository cannot be made: " + err.Error()}}
	}
	row := interleave(ctx, max(r.s.o.pairs/4, 3), ours, theirs).row(goal)
	row.who = r.s.users[0].name
	return row
}
