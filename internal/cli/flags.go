// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// limitFlags are the limits as they were written.
type limitFlags struct {
	flags *pflag.FlagSet
	text  map[sandbox.LimitName]*string
	kill  bool
}

// onOutput is what policy calls the choice of --output-kill.
const onOutput sandbox.LimitName = "on_output"

// limitFlag is one limit's flag. How it is read the policy knows.
type limitFlag struct {
	limit sandbox.LimitName
	flag  string
	help  string
}

func limitTable() []limitFlag {
	return []limitFlag{
		{sandbox.LimitWall, "timeout", "wall-clock `TIME`: 5s, 2m"},
		{sandbox.LimitCPUTime, "cpu-time", "CPU `TIME` of all processes together: 20s"},
		{sandbox.LimitCPUs, "cpus", "share of processors: `N`, such as 0.5"},
		{sandbox.LimitMemory, "memory", "memory of all processes, without swap: `SIZE`, such as 128MiB"},
		{sandbox.LimitProcesses, "processes", "processes and threads: `N`"},
		{sandbox.LimitOpenFiles, "open-files", "open files per process: `N`"},
		{sandbox.LimitFileSize, "file-size", "`SIZE` of one file: 10MiB"},
		{sandbox.LimitDisk, "disk", "writable space but /tmp: `SIZE`"},
		{sandbox.LimitInodes, "inodes", "files and directories: `N`"},
		{sandbox.LimitTmp, "tmp", "space of /tmp: `SIZE`"},
		{sandbox.LimitIO, "io", "block I/O, each direction: `RATE`, such as 50MiB/s"},
		{sandbox.LimitIOPS, "iops", "block I/O operations, each direction: `RATE`, such as 1000/s"},
		{sandbox.LimitOutput, "output", "output kept per stream: `SIZE`"},
	}
}

// add adds the flags, whose help says what holds without them.
func (f *limitFlags) add(fs *pflag.FlagSet, defaults sandbox.Limits) {
	f.flags, f.text = fs, map[sandbox.LimitName]*string{}
	for _, l := range limitTable() {
		help := l.help
		if text := policy.LimitText(&defaults, l.limit); text != "" {
			help += " (" + text + ")"
		}
		f.text[l.limit] = fs.String(l.flag, "", help)
	}
	fs.BoolVar(&f.kill, "output-kill", false, "end the program when it writes more than --output, instead of cutting it")
}

// read sets the limits that were written down, and says so.
func (f *limitFlags) read(l *sandbox.Limits) error {
	l.Explicit = map[sandbox.LimitName]bool{}
	for _, t := range limitTable() {
		if !f.flags.Changed(t.flag) {
			continue
		}
		if err := policy.ReadLimit(l, t.limit, *f.text[t.limit]); err != nil {
			return &sandbox.Error{Op: "--" + t.flag, Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
		}
		l.Explicit[t.limit] = true
	}
	if f.flags.Changed("output-kill") {
		l.OutputKill, l.Explicit[onOutput] = f.kill, true
	}
	return nil
}

// readChanges reads what is kept of what code changes in the workspace.
func readChanges(c *session.Call, f *runFlags) error {
	asked := f.keepIgnored || strings.HasSuffix(f.workspace, ":review")
	if f.discard && asked {
		return &sandbox.Error{Op: "--discard", Kind: sandbox.ErrInvalid, Problem: "it keeps nothing, and --keep-ignored and :review want it kept", Hint: "drop one of them"}
	}
	c.Changes = policy.ChangesWish{Keep: !f.discard, Discard: f.discard, Required: asked, Ignored: f.keepIgnored, From: f.changes}
	return nil
}

// given says whether a flag stands on the command line; one whose flags are not known has none.
func (f *runFlags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// readCollect reads what is taken out.
func readCollect(c *session.Call, f *runFlags) (err error) {
	for _, name := range []string{"collect-overwrite", "collect-files", "collect-size"} {
		if f.given(name) && len(f.collect) == 0 {
			return &sandbox.Error{Op: "--" + name, Kind: sandbox.ErrInvalid, Problem: "there is nothing to collect", Hint: "name it with --collect 'PATTERN[:DIR]'"}
		}
	}
	c.CollectOverwrite, c.CollectLimits.Files = f.overwrite, f.collectFiles
	if f.given("collect-files") && f.collectFiles < 1 {
		c.CollectLimits.Files = -1 // which policy refuses
	}
	if f.collectSize != "" {
		if c.CollectLimits.Bytes, err = policy.ParseSize(f.collectSize); err != nil {
			return &sandbox.Error{Op: "--collect-size", Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
		}
	}
	for _, s := range f.collect {
		w, err := policy.ParseCollect(s)
		if err != nil {
			return err
		}
		if w.Dest == "" {
			w.Dest = "."
		}
		if w.Dest, err = absolute(w.Dest); err != nil {
			return err
		}
		c.Collect = append(c.Collect, w)
	}
	return nil
}

// readFiles reads what is shown and what is taken out. Host paths become
// absolute here: this is the last place that knows the working directory.
func readFiles(c *session.Call, f *runFlags) (err error) {
	for _, s := range f.mounts {
		m, err := policy.ParseMount(s)
		if err != nil {
			return err
		}
		if m.Source, err = absolute(m.Source); err != nil {
			return err
		}
		c.Mounts = append(c.Mounts, m)
	}
	if err := readChanges(c, f); err != nil {
		return err
	}
	if f.workspace != "" {
		dir, review := strings.CutSuffix(f.workspace, ":review")
		f.review = review
		m, err := policy.ParseWorkspace(dir)
		if err != nil {
			return err
		}
		if m.Source, err = absolute(m.Source); err != nil {
			return err
		}
		c.Workspace = &m
	}
	if f.git != "" {
		if c.Git, err = policy.ParseGit(f.git); err != nil {
			return &sandbox.Error{Op: "--git", Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
		}
	}
	if err := readCollect(c, f); err != nil {
		return err
	}
	for _, s := range f.toolchains {
		p, err := absolute(s)
		if err != nil {
			return err
		}
		c.Toolchains = append(c.Toolchains, p)
	}
	if f.rootfs != "" {
		if c.Rootfs, err = absolute(f.rootfs); err != nil {
			return err
		}
	}
	if f.template != "" {
		if f.image != "" {
			return &sandbox.Error{Op: "--template", Kind: sandbox.ErrInvalid, Problem: "it is the root, and so is --image", Hint: "drop one of them"}
		}
		r, err := templateName(f.template)
		if err != nil {
			return err
		}
		c.Image = r.String()
	}
	if f.image != "" {
		var r reference.Ref
		if r, err = localImage(f.image); err == nil {
			c.Image = r.String()
		}
	}
	return err
}

// readSecrets reads where secrets are from, never what they are.
func readSecrets(c *session.Call, f *networkFlags) (err error) {
	for _, text := range f.secrets {
		s, err := policy.ParseSecret(text)
		if err != nil {
			return &sandbox.Error{Op: "--secret", Kind: sandbox.ErrInvalid, Problem: err.Error(), Hint: sandbox.Hint(err)}
		}
		if path, ok := strings.CutPrefix(s.From, "file:"); ok {
			if path, err = absolute(path); err != nil {
				return err
			}
			s.From = "file:" + path
		}
		c.Secrets = append(c.Secrets, s)
	}
	if f.upstreamCA == "" {
		return nil
	}
	// It is read when there is a host whose TLS is ended, and a misspelt name is
	// found before.
	if c.UpstreamCA, err = absolute(f.upstreamCA); err != nil {
		return err
	}
	if _, err := os.Stat(c.UpstreamCA); os.IsNotExist(err) {
		return &sandbox.Error{Op: "--upstream-ca " + sandbox.Quoted(f.upstreamCA), Kind: sandbox.ErrNotFound, Problem: "there is no such file", Hint: "name a file with certificates in PEM"}
	}
	return nil
}

func absolute(p string) (string, error) {
	if p == "" {
		return "", &sandbox.Error{Op: "path", Kind: sandbox.ErrInvalid, Problem: "it is empty", Hint: "name a file or directory of this host"}
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", &sandbox.Error{Op: "path " + sandbox.Quoted(p), Kind: sandbox.ErrInvalid, Problem: "the working directory cannot be found", Hint: "give an absolute path", Cause: err}
	}
	return abs, nil
}

// readEnv reads --env-file, then --env, which win. NAME alone passes the
// caller's value on. read are the files.
func readEnv(flags, files []string) (_ map[string]string, read []sandbox.HostFile, _ error) {
	env := map[string]string{}
	for _, name := range files {
		f, err := readEnvFile(env, name)
		if err != nil {
			return nil, nil, err
		}
		if f.File != nil {
			read = append(read, f)
		}
	}
	for _, s := range flags {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return nil, nil, &sandbox.Error{Op: "--env " + sandbox.Quoted(name), Kind: sandbox.ErrInvalid, Problem: "it is not set here, so it cannot be passed on",
					Hint: "write --env " + name + "=VALUE"}
			}
		}
		if name == "" {
			return nil, nil, &sandbox.Error{Op: "--env " + sandbox.Quoted(s), Kind: sandbox.ErrInvalid, Problem: "the name is missing", Hint: "write --env NAME=VALUE"}
		}
		env[name] = value
	}
	return env, read, nil
}

// maxEnvFile is how long one is at most, in bytes: Linux starts no program with more.
const maxEnvFile = 6 << 20

// readEnvFile reads NAME=VALUE lines. Values are taken as they are: no quotes,
// no variables, as docker's --env-file. Messages never show a value.
func readEnvFile(env map[string]string, name string) (none sandbox.HostFile, _ error) {
	op := "--env-file " + sandbox.Quoted(name)
	bad := func(problem string, cause error) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: problem, Hint: "write lines of NAME=VALUE", Cause: cause}
	}
	text, file, err := files.ReadOpen(name, maxEnvFile)
	if err != nil {
		return none, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "it cannot be read", Hint: "name a file with lines of NAME=VALUE", Cause: err}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 256<<10)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.ContainsAny(key, " \t\x00") {
			return none, bad(fmt.Sprintf("line %d is not NAME=VALUE", n), nil)
		}
		env[key] = value
	}
	if lines.Err() != nil {
		return none, bad("a line is too long", lines.Err())
	}
	path, err := files.Absolute(name)
	if err != nil {
		return none, &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: "the working directory cannot be found", Hint: "give an absolute path", Cause: err}
	}
	return sandbox.HostFile{Path: path, File: file}, nil
}

// actor is who is at the command line.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid:" + strconv.Itoa(os.Getuid())
}
