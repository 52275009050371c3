// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
)

// Subject is everything that decides what a call does. Its maker fills in what
// the call will really use, not what it was called.
type Subject struct {
	Actor string // who asks: "key:ci"
	Kind  string // "run_command", "run_code", "call_tool"

	// Tool is the name of a tool, Params its arguments in their canonical form,
	// and Definition the digest of what the tool says of itself.
	Tool, Params, Definition string
	// Marked is the seal of what Params and Argv leave out because it is to be in no
	// record; see Seal.
	Marked string

	Argv     []string
	Language string
	Code     []byte   // the whole source
	Program  []string // what source is run with

	// Files are the contents that run: the executable that Argv or Program
	// names, and files that arguments name.
	Files []File

	Dir      string
	Env      []Variable
	Stdin    []byte // all that can be read from it
	HasStdin bool

	Mounts  []Mount
	Network string // what is allowed; "none"
	Secrets []string

	Isolation, Image string
	User             string
	Limits           map[string]string
	Options          []string // whatever else was asked for: best effort, overrides

	Policy string // its digest
	// Sandbox is the one it runs in, and Generation tells what is in it from
	// what was there before it was restored; empty for one that is made for it.
	Sandbox, Generation string

	// Reasons are why it is asked: the rules, and what they say.
	Reasons []Reason
	// Findings are what the policy's rules about code say of the program, and where: a
	// line each.
	Findings []string
}

// File is a file whose contents decide.
type File struct {
	Path   string // as it was named
	Real   string // inside, with links followed
	Digest string // of its contents, "sha256:…"; of an image's file, of the image
	Size   int64
}

// Variable is a variable of the environment. Its value is not kept.
type Variable struct {
	Name string
	Seal string // of the value; see Seal
}

// Mount is a host file or directory that is shown.
type Mount struct {
	Source, Target, Access string
	Object                 string // the very file: device and inode
}

// Reason is a rule that asks.
type Reason struct {
	Rule string // file:line
	What string // a sentence
}

// Seal stands for a value that must not be told: it is as good as a digest for
// comparing, and without key values cannot be tried out on it.
func Seal(key []byte, value string) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(value))
	return hex.EncodeToString(m.Sum(nil)[:16])
}

// Digest names the Subject: "sha256:" and 64 hex digits. Each field and each
// part of a list is told from its neighbours by its length, so that no two
// Subjects are written the same.
func (s *Subject) Digest() string {
	w := writer{sha256.New()}
	w.text("caisson approval 3", s.Actor, s.Kind, s.Tool, s.Params, s.Definition, s.Marked)
	w.list(s.Argv)
	w.text(s.Language, string(s.Code))
	w.list(s.Program)
	w.count(len(s.Files))
	for _, f := range s.Files {
		w.text(f.Path, f.Real, f.Digest)
		w.count(int(f.Size))
	}
	w.text(s.Dir)
	w.count(len(s.Env))
	for _, v := range s.Env {
		w.text(v.Name, v.Seal)
	}
	w.flag(s.HasStdin)
	w.text(string(s.Stdin))
	w.count(len(s.Mounts))
	for _, m := range s.Mounts {
		w.text(m.Source, m.Target, m.Access, m.Object)
	}
	w.text(s.Network)
	w.list(s.Secrets)
	w.text(s.Isolation, s.Image, s.User)
	w.count(len(s.Limits))
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		w.text(name, s.Limits[name])
	}
	w.list(s.Options)
	w.text(s.Policy, s.Sandbox, s.Generation)
	w.count(len(s.Reasons))
	for _, r := range s.Reasons {
		w.text(r.Rule, r.What)
	}
	w.list(s.Findings)
	return "sha256:" + hex.EncodeToString(w.Sum(nil))
}

// writer writes fields so that where one ends is known.
type writer struct{ hash.Hash }

func (w writer) count(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	w.Write(b[:])
}

func (w writer) text(list ...string) {
	for _, s := range list {
		w.count(len(s))
		w.Write([]byte(s))
	}
}

func (w writer) list(list []string) {
	w.count(len(list))
	w.text(list...)
}

func (w writer) flag(b bool) {
	if b {
		w.count(1)
	} else {
		w.count(0)
	}
}
