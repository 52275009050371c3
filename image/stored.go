// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-run/caisson/image/fstree"
	"github.com/caisson-run/caisson/internal/hostpath"
	"github.com/caisson-run/caisson/sandbox"
)

// Stored is a container image in the [Store], as image.json beside it says.
//
// # How an image is run
//
// The same on every level:
//
//   - A command (caisson run --image X -- ARG...) follows docker run: the
//     image's entrypoint stays, the arguments take the place of its cmd; without
//     arguments the cmd runs. --entrypoint puts another program in the
//     entrypoint's place and drops the cmd; an empty one drops both. A file or
//     source is run by its interpreter, without the entrypoint.
//   - The environment is the image's, then ours (HOME, USER, LOGNAME), then the
//     call's. PATH is the image's.
//   - The user is the image's. Where that is root or not given, it is uid 1000,
//     as without an image; --root makes it the sandbox's own root. Names come
//     from the image's /etc/passwd; where it knows no such uid, a line "user" is
//     added. The home is /home/user (/root for root), private and writable, and
//     empty where the image is no template.
//   - The working directory is the one that was asked for, else the workspace,
//     else the image's, else the home.
//   - /etc/hosts, /etc/hostname and /etc/resolv.conf are ours, and the same in
//     every image. /proc, /sys, /dev, /tmp, /workspace and the homes exist.
type Stored struct {
	// Digest is the manifest's, "sha256:…": what is recorded, and what every
	// level gets.
	Digest string `json:"digest"`
	// Names are references that were resolved to it, in their familiar form.
	Names []string `json:"names,omitempty"`

	Config Config `json:"config"`
	// User runs programs, Root does with --root.
	User sandbox.User `json:"user"`
	Root sandbox.User `json:"root"`

	Size  int64       `json:"size"`  // of all files, in bytes
	Files int         `json:"files"` // names in the tree
	Made  time.Time   `json:"made"`  // when it was unpacked here
	Left  fstree.Left `json:"left_out"`
	// Notes are sentences for people, about what shows otherwise than in the image.
	Notes []string `json:"notes,omitempty"`

	// Built says that it is a template's: programs find in their home what it has there.
	Built bool `json:"built,omitempty"`

	// InUse says that a sandbox runs on it now; only List knows.
	InUse bool `json:"in_use,omitempty"`
}

// PullOptions say how an image is found.
type PullOptions struct {
	// Insecure lets its registry be asked without TLS (one on this host may be
	// in any case).
	Insecure bool
	// Public has its registry asked without the operator's credentials, and at public
	// addresses alone: who asks is not the operator.
	Public bool
	// Login is what the image's registry is asked with. An image that is got so has no
	// name afterwards, and what is known of its name does not count: another's login may
	// not read it.
	Login *Login
	// File is the object that a local reference names, where the caller has
	// opened and judged it; else it is opened by its path. It stays the caller's.
	File *os.File
	// Owner is who asks for a template: the ID of a key; empty is the operator. Who has
	// none of the name gets the operator's.
	Owner string
	// Digest, where the image that has it is here, is what is meant, whatever the name means
	// now: what was made of it goes on with it. The caller has judged the name.
	Digest string
	// Progress, when set, is told how many bytes of layers were read, of how
	// many, some times a second. It must not block.
	Progress func(done, total int64)
}

// RootOptions say what [Store.Root] makes of an image.
type RootOptions struct {
	// Toolchains are as in HostOptions.
	Toolchains []*hostpath.Source
	// EROFS gives the tree as one file, for levels that take it; otherwise it
	// is unpacked as a directory.
	EROFS bool
	// Targets are the paths of all mounts, scratch directories and masks.
	Targets []Target
}

// searchPath is PATH inside: the image's, else the usual one.
func (i *Stored) searchPath() []string {
	for _, e := range i.Config.Env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok && p != "" {
			return strings.Split(p, ":")
		}
	}
	return usualPath
}

// Command is what is run: the image's entrypoint and args, or its cmd where
// there are none (docker run). entrypoint, when not nil, takes the place of the
// image's, and drops its cmd.
func (i *Stored) Command(entrypoint *string, args []string) []string {
	if entrypoint != nil {
		if *entrypoint == "" {
			return args
		}
		return append([]string{*entrypoint}, args...)
	}
	if len(args) == 0 {
		args = i.Config.Cmd
	}
	return slices.Concat(i.Config.Entrypoint, args)
}
