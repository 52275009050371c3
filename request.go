// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Request is one thing to run: a Command, or Code in a Language.
type Request struct {
	// Command is a program and its arguments. Without a slash the program is
	// looked up inside.
	Command []string

	// Code is source, run by Language's interpreter with Args; an empty
	// Language is taken from the first line ("#!/usr/bin/env python3").
	Code     string
	Language string
	Args     []string

	// Stdin is what the program reads; nil is an empty input.
	Stdin io.Reader
	// Stdout and Stderr get what the program writes, as it writes it. Where
	// they are nil the Result keeps it, up to Limits.Output bytes.
	Stdout, Stderr io.Writer

	// Isolation is the level that the request runs on, "process" for one; the
	// policy's, or gvisor, when empty.
	Isolation string

	// Dir is the working directory inside; the home directory when empty.
	Dir string
	// Env is set on top of the few variables that every program gets. Nothing
	// is inherited.
	Env map[string]string

	// Image is the container image that the request runs on: "python:3.14",
	// "ghcr.io/acme/tool@sha256:…", "./image.tar", "oci:DIR", or a template that was built
	// here: "template:data". An image is pulled when it is not here. Empty is this host's own toolchain. Without a Command what the
	// image names runs; its entrypoint stays in front of one.
	Image string

	// Limits are those to be held instead of the defaults; a field that is 0
	// keeps its default. One that this host cannot hold refuses the request.
	Limits Limits
	// BestEffort runs it all the same; Result.Posture says which limits hold. A policy
	// has to allow that.
	BestEffort bool

	// Mounts are host files and directories to be shown.
	Mounts []Mount
	// Workspace, when not nil, is shown as the working directory.
	Workspace *Mount
	// KeepChanges keeps what code changes in a copy-on-write Workspace as a change set;
	// Result.Changes names it, and [Caisson.ChangeSets] shows and applies it. Where that
	// cannot be, the request is refused. KeepIgnored keeps also what .gitignore files ignore.
	KeepChanges bool
	KeepIgnored bool
	// GitWrite lets code write in the repositories of what is mounted read-write,
	// which are read-only otherwise.
	GitWrite bool
	// Collect takes files out after the end. What cannot be is in Result.Uncollected,
	// and no error.
	Collect []Collect
	// CollectOverwrite has files that exist give way to those that are taken out. Without
	// it they stay, and what would take their names is in Result.Uncollected.
	CollectOverwrite bool
	// CollectLimits bound what each of them takes out. Zero is 1000 files, 256 MiB.
	CollectLimits policy.CollectLimits

	// Allow lets connections out: "pypi.org" (443 and 80), "*.example.com:443",
	// "10.1.0.0/16:5432", "internet", "preset:pip". Empty is no network.
	Allow []string

	// Secrets are put into requests to their hosts on the way out; code has a
	// placeholder. Their hosts must be in Allow.
	Secrets []Secret
	// UpstreamCA is a file with authorities, in PEM, that hosts which get secrets
	// may be certified by, besides those that this host trusts.
	UpstreamCA string

	// Actor says who asks, for the audit record.
	Actor string
}

// Mount shows a host path inside.
type Mount struct {
	Source string         // host path, absolute or relative to the process
	Target string         // absolute path inside; empty is the base name in the working directory
	Access sandbox.Access // read-only unless said
	// Shared lets a read-write mount through that another sandbox has: on gVisor locks and
	// shared mappings of files in it are then each sandbox's own.
	Shared bool
}

// Secret is a secret and where it goes.
type Secret struct {
	Name   string   // of the variable that holds the placeholder inside
	From   string   // "env:NAME" of this process, "file:PATH", or "login:claude", "login:chatgpt", "login:google"
	Hosts  []string // "api.example.com", "*.example.com:8443"; a login has its own
	Header string   // Authorization when empty
	Format string   // of the header, with {} for the secret; empty keeps what code wrote around its placeholder
	// OtherCredentials lets requests to Hosts have credentials of their own.
	OtherCredentials bool
	// Optional says that it may be absent: a variable that is not set, a file or a login that
	// is not there.
	Optional bool
}

// Collect names files to be taken out.
type Collect struct {
	Pattern string // a glob on paths inside, relative to the working directory
	Dest    string // host directory
}

// call is the request in the road's words.
func (r *Request) call() (*session.Call, session.IO, error) {
	c := &session.Call{Frontend: frontend}
	c.Actor, c.Argv, c.Cwd, c.Env, c.Operator, c.Isolation = r.Actor, r.Command, r.Dir, r.Env, true, r.Isolation
	c.Limits, c.BestEffort, c.Network = explicit(r.Limits), r.BestEffort, r.Allow
	if r.Code != "" {
		if len(r.Command) > 0 {
			return nil, session.IO{}, sandbox.Errorf(sandbox.ErrInvalid, "request", "it has both a command and code")
		}
		c.Argv, c.Source = r.Args, &session.Source{Language: r.Language, Code: []byte(r.Code)}
	}
	var err error
	if c.Image, err = absoluteImage(r.Image); err != nil {
		return nil, session.IO{}, err
	}
	if err := r.secrets(c); err != nil {
		return nil, session.IO{}, err
	}
	for _, m := range r.Mounts {
		w, err := m.wish()
		if err != nil {
			return nil, session.IO{}, err
		}
		c.Mounts = append(c.Mounts, w)
	}
	if r.Workspace != nil {
		w, err := r.Workspace.wish()
		if err != nil {
			return nil, session.IO{}, err
		}
		c.Workspace = &w
	}
	c.CollectOverwrite, c.CollectLimits = r.CollectOverwrite, r.CollectLimits
	c.Changes = policy.ChangesWish{Keep: r.KeepChanges, Required: r.KeepChanges, Ignored: r.KeepIgnored}
	if r.GitWrite {
		c.Git = policy.GitWrite
	}
	for _, w := range r.Collect {
		dest, err := absolute(w.Dest)
		if err != nil {
			return nil, session.IO{}, err
		}
		c.Collect = append(c.Collect, policy.CollectWish{Pattern: w.Pattern, Dest: dest})
	}
	return c, session.IO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr}, nil
}

// secrets says where they are from.
func (r *Request) secrets(c *session.Call) (err error) {
	for _, s := range r.Secrets {
		if path, ok := strings.CutPrefix(s.From, "file:"); ok {
			if path, err = absolute(path); err != nil {
				return err
			}
			s.From = "file:" + path
		}
		c.Secrets = append(c.Secrets, policy.Secret{Name: s.Name, From: s.From, Hosts: s.Hosts, Header: s.Header, Format: s.Format, Others: s.OtherCredentials, Optional: s.Optional})
	}
	if r.UpstreamCA != "" {
		c.UpstreamCA, err = absolute(r.UpstreamCA)
	}
	return err
}

func (m Mount) wish() (policy.MountWish, error) {
	source, err := absolute(m.Source)
	return policy.MountWish{Source: source, Target: m.Target, Access: m.Access, Shared: m.Shared}, err
}

func absolute(path string) (string, error) {
	if path == "" {
		return "", sandbox.Errorf(sandbox.ErrInvalid, "request", "a host path is empty")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", &sandbox.Error{Op: "path " + path, Kind: sandbox.ErrInvalid, Problem: "it has no absolute form", Cause: err}
	}
	return abs, nil
}

// absoluteImage makes the path of a local image absolute.
func absoluteImage(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	r, err := reference.Parse(s)
	if err != nil || !r.Local() {
		return s, err
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return "", &sandbox.Error{Op: "image " + s, Kind: sandbox.ErrInvalid, Problem: "it has no absolute form", Cause: err}
	}
	return r.At(dir).String(), nil
}

// explicit says of every limit that is set that it is written down.
func explicit(l Limits) Limits {
	l.Explicit = map[sandbox.LimitName]bool{}
	for _, name := range sandbox.LimitNames() {
		if l.InForce(name) {
			l.Explicit[name] = true
		}
	}
	if l.OutputKill {
		l.Explicit["on_output"] = true
	}
	return l
}
