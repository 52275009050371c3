// SPDX-License-Identifier: Apache-2.0

// Package template reads what a template is built from: a Dockerfile, a template.yaml or
// the steps of E2B's clients. Each becomes one Definition, which session builds. The
// package does no I/O: a file that is to be copied is a name here, a base image too.
package template

import "github.com/caisson-run/caisson/sandbox"

// Definition is what a template is built from: stages, of which the last becomes the
// template. A stage that the last one does not need is left out.
type Definition struct {
	Stages  []Stage
	Config  Config         // what sandboxes of the template begin with
	Network []string       // what the steps may reach, as --allow takes it: hosts and preset:NAME
	Limits  sandbox.Limits // of each step; those in Explicit are written down, all others are 0
	Warmup  string         // code that is run once before memory is kept; may be empty
}

// Config is what a program begins with. Where Options.Base is given, it has what the base
// says too.
type Config struct {
	Env        []string // NAME=VALUE, each name once
	Dir        string   // absolute, or empty where neither file nor base says one
	User       string   // NAME, UID, NAME:GROUP or UID:GID; empty where none is said
	Shell      []string // what a line of shell is handed to; empty for /bin/sh -c
	Entrypoint []string
	Cmd        []string
	Start      string // a line of shell that is started with the sandbox; may be empty
	Ready      string // a line of shell that exits with 0 when the sandbox is ready; may be empty
	Labels     map[string]string
	Ports      []string // "80/tcp", "8000-8010/udp"
}

// Stage is one tree that is built: a base and the steps on it.
type Stage struct {
	Name  string // in small letters; empty for none
	From  Base
	Steps []Step
	Line  int // of its FROM; 0 for none
}

// BaseKind is what a stage starts from.
type BaseKind int

// The kinds of base.
const (
	Host     BaseKind = iota // the host's toolchain
	Image                    // a container image, Base.Name
	Template                 // another template, Base.Name
	Earlier                  // an earlier stage, Base.Stage
	Scratch                  // nothing
)

// Base is what a stage starts from. It can be compared.
type Base struct {
	Kind  BaseKind
	Name  string // a reference as image/reference reads it, never a path; or a template's name
	Stage int    // index in Definition.Stages, less than the stage's own
}

// Step changes the tree of its stage. It has one of Argv, Copy and MakeDir.
type Step struct {
	Text string // as progress shows it: the instruction in one line
	Line int    // in the file; of E2B's steps the index, from 1; 0 for none

	// What holds for it. Env has the arguments of the build too, which Config.Env does not.
	Env  []string
	Dir  string // absolute, or empty for the base's own
	User string // empty for the base's own

	Argv    []string // a program to run, a line of shell in its shell
	Copy    *Copy    // files to put in
	MakeDir string   // a directory to make with those above it, and to give to User; absolute

	NoCache bool // it is carried out even where its result is known
}

// ContextDir is Copy.From where files come from the build's directory.
const ContextDir = -1

// Copy puts files into the tree.
type Copy struct {
	From      int    // index of an earlier stage; ContextDir for the build's directory, FromImage or Upload
	FromImage string // files are this image's; empty for none
	Upload    string // hash of the upload of E2B's client that holds the sources; empty for none

	// Sources are clean and relative to the root of what they are taken from, "." for all of
	// it, and never lead out of it. Each may be a pattern as path.Match has it. A directory
	// stands for what is in it.
	Sources []string
	Inline  []File // files whose content the Dockerfile has
	// Target is absolute, or relative to the base's directory where Step.Dir is empty. With /
	// at its end it is a directory, also where it is not there yet.
	Target  string
	Chown   string // USER[:GROUP] in the words of the tree; empty for root
	Chmod   string // octal; empty for that of the source
	Extract bool   // a source that is a tar archive is unpacked, as ADD does
}

// File is a small file with its content.
type File struct {
	Name string // one element of a path
	Data string
}

// Options say what a reader cannot know by itself.
type Options struct {
	// Args are values for ARG, by name. One that no ARG names is not used.
	Args map[string]string
	// Arch is what the template is for, in Go's words; empty for this program's own.
	Arch string
	// Base says what a base has that is no earlier stage, such as its PATH, which a file may
	// refer to. A nil one knows nothing: the stages and their bases are the same, so a file
	// can be read once to learn of them, and again when they are there.
	Base func(Base) Config
}

func (o *Options) base(b Base) Config {
	if o.Base == nil {
		return Config{}
	}
	return o.Base(b)
}
