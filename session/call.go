// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"syscall"

	"github.com/caisson-run/caisson/internal/store"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/environment"
	"github.com/caisson-run/caisson/session/network"
	"github.com/caisson-run/caisson/session/question"
)

// Call is one request. Frontends fill what policy.Call asks for; ID, Kind,
// Language and Code are the pipeline's to fill.
//
// What runs is one of three: Argv alone, Source, or File. With the latter two
// Argv holds the arguments.
type Call struct {
	policy.Call

	// Account is the ID of the key for whose rates and records it counts. When empty the
	// rates are the actor's, and the records are no key's.
	Account string
	// argv is Argv as records have it, when that is not the same.
	RecordArgv []string
	// fetches says that it is a declared request, with a program of ours.
	Fetches bool

	// Frontend is where the request came in: "cli".
	Frontend string

	// Source is code that came with the request.
	Source *Source
	// File is the absolute path of a host file to run. It alone is shown, in
	// the working directory, unless the workspace shows it already.
	File string
	// FileLanguage overrides what File's name and first line say.
	FileLanguage string

	// Step makes the call a step of a template's build, and Changed gets what it changed in
	// the tree when it has succeeded, as sandbox.ChangeReader has it.
	Step    *environment.Step
	Changed func(ctx context.Context, layer io.Reader) error

	// Read are files that were read to make the call: of variables, say. Code that it
	// runs cannot change them.
	Read []sandbox.HostFile

	// AllowDangerousMounts lets mounts of home folders, keys and credentials
	// through: the operator's explicit word. It is recorded.
	AllowDangerousMounts bool

	// Watch are rules on top of the policy's.
	Watch []policy.WatchRule

	// TTY, Term (the name of its kind) and Signals are handed to the program.
	TTY     *sandbox.Terminal
	Term    string
	Signals <-chan syscall.Signal

	question.Ways

	// User is whom the request names of those that a persistent sandbox has, and
	// whose rights the program has: see [Inside.Account]. Empty is the sandbox's own, or
	// root where the policy says so.
	User string

	// WritesInput says that the caller writes to the program in a persistent
	// sandbox while it runs. That cannot be approved beforehand.
	WritesInput bool

	// TypedInput says that standard input is typed by a person.
	TypedInput bool

	// OnUsage, when set, gets live usage. It must not block.
	OnUsage func(sandbox.Usage)
	// OnReport, when set, gets watch rules that only report. It must not block.
	OnReport func(policy.Fired)
	// OnPull, when set, is told how much of an image was read that is not here
	// yet, in bytes. It must not block.
	OnPull func(done, total int64)
	// OnPack, when set, is told how much of this host's files was packed for a virtual
	// machine, where that is not done yet, in bytes. It must not block.
	OnPack func(done, total int64)
	// OnRefused, when set, gets attempts of the program's to reach what is not
	// allowed, each sort once, and allowed names that have no address. It must not block.
	OnRefused func(network.Refusal)
	// OnNotice, when set, gets sentences for people: limits that were asked for with
	// best effort and do not hold here, what of an image is left out, and the like.
	OnNotice func(string)
	// OnLacking, when set, gets the default limits that do not hold here, before the
	// program runs.
	OnLacking func(Lacking)
}

// IO are a program's streams. A nil Stdin is empty. A nil Stdout or Stderr
// keeps what the program writes in the Result instead, up to the output limit.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// State makes the directories of runs.
type State interface {
	// Run makes a directory, mode 0700, for sandbox id, held by this process
	// until it is removed.
	Run(id string) (RunDir, error)
	// RunPath is where that directory is, and Adopt takes it over from an owner who
	// is gone, by a copy of its Hold.
	RunPath(id string) (string, error)
	Adopt(id string, hold *os.File) (RunDir, error)
	// Sweep removes the directories of dead owners; clean takes away what else
	// is left of each.
	Sweep(ctx context.Context, clean func(ctx context.Context, path string) error) (swept []string, err error)
	// Path is the state directory, which no sandbox may see.
	Path() string
}

// RunDir is the directory of one sandbox.
type RunDir interface {
	Path() string
	Remove() error
	// Hold is the lock that makes the directory this process's, to be copied for
	// who holds it on. Release lets go of it; Remove does nothing afterwards.
	Hold() *os.File
	Release()
}

// DirState is the State of a state directory.
func DirState(d *store.Dir) State { return dirState{d} }

type dirState struct{ *store.Dir }

func (d dirState) Run(id string) (RunDir, error) {
	r, err := d.Dir.Run(id)
	if err != nil {
		return nil, err // not r: a nil pointer in an interface is not nil
	}
	return r, nil
}

func (d dirState) Adopt(id string, hold *os.File) (RunDir, error) {
	r, err := d.Dir.Adopt(id, hold)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// NewID is a name that cannot be guessed: 130 bits.
func NewID() string { return "sbx_" + rand.Text() }
