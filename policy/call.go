// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Kind is what a call is.
type Kind string

// The kinds of call.
const (
	RunCommand Kind = "run_command"
	RunCode    Kind = "run_code"
	// StartSandbox makes a persistent sandbox. What runs in it later is a
	// call of its own.
	StartSandbox Kind = "start_sandbox"
	// CallHTTP is a declared request, made from a sandbox that has nothing but a
	// network: no file, no program and no variable of the caller's.
	CallHTTP Kind = "call_http"
	// CallTool is a tool that starts no program by itself: it reads a file of a
	// sandbox, say. One that does is of the kinds above, with Tool.
	CallTool Kind = "call_tool"
)

// Call is what one request asks for, in full: Decide looks at nothing else. A
// field that is empty asks for nothing.
type Call struct {
	ID    string
	Actor string // who asks: a key's name, or the user of the command line
	Kind  Kind

	// Tool is what was called, when it was a tool. All else in the call is what
	// that tool would do.
	Tool *ToolCall

	Argv     []string // of RunCommand
	Path     string   // of ReadFile and its like: inside, absolute and clean
	Language string   // of RunCode
	Code     string   // sha256 of the source, "sha256:…"
	// Program is what the source is run with, and its file last; Script is its
	// text where Language is a shell's. A policy with commands judges them.
	Program  []string
	Script   string
	Cwd      string // working directory inside, absolute; empty is the session's to choose
	Env      map[string]string
	Stdin    bool // standard input is given
	Terminal bool

	// Isolation is the level asked for by name.
	Isolation string
	// Limits are those asked for; a field counts when Explicit names it. The
	// name "on_output" says so of OutputKill.
	Limits sandbox.Limits

	// Host paths below are absolute.
	Workspace  *MountWish
	Mounts     []MountWish
	Toolchains []string
	Rootfs     string

	// Git says whether code may write in the repositories of read-write mounts:
	// GitWrite, GitReadOnly, or "" for what the policy says of its own mounts.
	Git GitAccess

	// Image is the container image to run, as reference.Parse reads it; a path
	// in it is absolute. Entrypoint, when not nil, takes the place of the
	// image's own program.
	Image      string
	Entrypoint *string
	// OwnImage says that Image is a template which the caller has built, or which the
	// operator shares with all: what it was made
	// from was judged then, and no list has to have it.
	OwnImage bool
	// InsecureRegistry lets its registry be asked without TLS.
	InsecureRegistry bool

	Writable []string // paths inside
	Deny     []string // Globs
	Collect  []CollectWish
	// CollectOverwrite has files give way that exist where Collect brings others.
	CollectOverwrite bool
	CollectLimits    CollectLimits

	Network []string // entries of an allow-list; see egress/rule
	// NetworkDeny takes parts of it away, and NoNetwork all of it, also of what
	// the policy grants unasked.
	NetworkDeny []string
	NoNetwork   bool
	// Headers are set in requests of the sandbox's, where the network lets them through.
	// Their values are secrets of the caller's.
	Headers []wire.Header

	// Secrets and UpstreamCA (an absolute path) are the operator's to name.
	Secrets    []Secret
	UpstreamCA string

	Changes ChangesWish // of what it changes in a copy-on-write workspace

	Root       bool // run as the sandbox's own root
	Sudo       bool // the operator's template offers it to what runs; files bound that, the defaults do not
	BestEffort bool // run although a clause cannot be enforced
	Override   bool // loosen the file's limits; recorded

	// Operator says that the caller owns this host (the command line). Any
	// other caller names no host path and overrides nothing.
	Operator bool
	// Lookup gives a variable of the caller's environment, for env.pass; nil
	// has none. Only names that a policy file passes are asked for.
	Lookup func(name string) (string, bool)
}

// ToolCall is a tool and its arguments.
type ToolCall struct {
	Name string
	// Server is the entry of servers that it is of, which lists it; empty for what
	// is built in or declared in tools.
	Server string
	// Args are the arguments as params.Read gives them.
	Args any
	// Sandbox is the living sandbox that it is about; empty is none.
	Sandbox string
	// Ruled says, of apply_changes, that the policy's own rules let all of it through:
	// no question is put.
	Ruled bool
}
