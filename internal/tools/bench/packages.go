// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// The project of the rows about npm and about agents: packages, and files in each.
const (
	npmPackages = 200
	npmFiles    = 20
)

// packages is a project whose packages npm has in its cache.
type packages struct {
	s    *stage
	made func() error
}

func (s *stage) packages() *packages {
	p := &packages{s: s}
	p.made = sync.OnceValue(p.make)
	return p
}

func (p *packages) dir() string   { return p.s.path("project") }
func (p *packages) cache() string { return p.s.path("npm-cache") }

// make writes the project with its lock file, and puts its packages into npm's cache, where
// npm finds them by their digests: it asks no registry.
func (p *packages) make() error {
	from := p.s.path("npm-packages")
	if err := errors.Join(os.MkdirAll(p.dir(), 0o755), os.MkdirAll(from, 0o755)); err != nil {
		return err
	}
	wanted, locked := map[string]string{}, map[string]any{}
	add := []string{"cache", "add", "--offline", "--cache", p.cache()}
	for i := range npmPackages {
		name := fmt.Sprintf("package-%03d", i)
		b, err := npmPackage(name)
		if err != nil {
			return err
		}
		at := filepath.Join(from, name+".tgz")
		if err := os.WriteFile(at, b, 0o644); err != nil {
			return err
		}
		sum := sha512.Sum512(b)
		wanted[name] = "1.0.0"
		locked["node_modules/"+name] = map[string]string{"version": "1.0.0", "resolved": "https://registry.example.com/" + name + "/-/" + name + "-1.0.0.tgz",
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		add = append(add, "file:"+at)
	}
	project := map[string]any{"name": "project", "version": "1.0.0", "dependencies": wanted}
	locked[""] = project
	for name, v := range map[string]any{"package.json": project, "package-lock.json": map[string]any{"name": "project", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": locked}} {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(p.dir(), name), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	if out, err := exec.Command("npm", add...).CombinedOutput(); err != nil {
		return fmt.Errorf("npm cache add: %w: %.300s", err, out)
	}
	return nil
}

// npmPackage is one as a registry has it.
func npmPackage(name string) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	files := map[string]string{"package.json": `{"name":"` + name + `","version":"1.0.0"}`}
	for i := range npmFiles {
		files[fmt.Sprintf("lib/file%02d.js", i)] = strings.Repeat("module.exports = () => 'a line of a program'\n", 30)
	}
	var err error
	for at, text := range files {
		err = errors.Join(err, t.WriteHeader(&tar.Header{Name: "package/" + at, Mode: 0o644, Size: int64(len(text))}))
		_, werr := t.Write([]byte(text))
		err = errors.Join(err, werr)
	}
	err = errors.Join(err, t.Close(), z.Close())
	return b.Bytes(), err
}

// rows are those of a level, beside the host.
func (p *packages) rows(level string) (list []bench) {
	if npm, err := exec.LookPath("npm"); err == nil && npm == "/usr/bin/npm" { // which a sandbox has, too
		list = append(list, bench{fmt.Sprintf("npm ci of %d packages, %d files, from its cache on %s, beside the host", npmPackages, npmPackages*npmFiles, level), func(ctx context.Context) row {
			const install = "npm ci --offline --no-audit --no-fund --silent --cache %s && rm -r node_modules"
			return p.measure(ctx, func(ctx context.Context) *exec.Cmd {
				return p.s.caisson(ctx, p.s.users[0], "run", "--isolation", level, "--workspace", p.dir(), "--discard", "--memory", "2GiB", "--disk", "2GiB", "--timeout", "10m",
					"--mount", p.cache()+":/home/user/.npm:cow", "--", "sh", "-c", fmt.Sprintf(install, "/home/user/.npm"))
			}, "sh", "-c", fmt.Sprintf(install, p.cache()))
		}})
	}
	for _, agent := range []string{"claude", "codex"} {
		if _, err := exec.LookPath(agent); err != nil || level != "gvisor" { // the preset's
			continue
		}
		list = append(list, bench{agent + " --version under --preset coding-agent, beside the host", func(ctx context.Context) row {
			return p.measure(ctx, func(ctx context.Context) *exec.Cmd {
				cmd := p.s.caisson(ctx, p.s.users[0], "run", "--preset", "coding-agent", "--", agent, "--version")
				cmd.Dir, cmd.Env = p.dir(), append(cmd.Env, "PATH="+os.Getenv("PATH")) // of which the preset shows what is needed
				return cmd
			}, agent, "--version")
		}})
	}
	return list
}

// measure takes a quarter of the pairs: these runs take long.
func (p *packages) measure(ctx context.Context, inside func(context.Context) *exec.Cmd, host ...string) row {
	if err := p.made(); err != nil {
		return row{notes: []string{"the project cannot be made: " + err.Error()}}
	}
	row := interleave(ctx, max(p.s.o.pairs/4, 3), timed(inside), timed(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, host[0], host[1:]...)
		cmd.Dir = p.dir()
		return cmd
	})).row("")
	row.who = p.s.users[0].name
	return row
}
