// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/unet"
)

// ChangesFD is the number under which the shim passes a socket to the kernel, on which
// it asks for the layers of copy-on-write mounts. Each message is a target, and comes with
// a file that gets the layer. Like [ScratchFD] it never becomes a descriptor inside.
const ChangesFD = StatusFD - 1

// ChangesAnnotation is the key in a spec's annotations under which the driver says, as
// JSON of [Changes], which layers are asked for; without it none.
const ChangesAnnotation = "dev.caisson.changes"

// Changes says which layers the kernel keeps at hand, and when it is asked for them.
type Changes struct {
	// Targets are the copy-on-write mounts of directories, Covered those of them in
	// which something else is mounted.
	Targets []string `json:"targets"`
	Covered []string `json:"covered,omitempty"`
	// AtEnd: once no program runs any more, and not before. The kernel does not end then
	// before the shim has hung up. It gives no answers.
	AtEnd bool `json:"at_end,omitempty"`
}

// The answers to a message, else what went wrong.
const (
	LayerWritten = "written"
	NoLayer      = "no such mount"
)

// changesVariable is for the socket what statusVariable is for the status pipe.
const changesVariable = "CAISSON_CHANGES_FD"

// changes are Changes in force.
type changes struct {
	Changes
	socket int

	found  atomic.Bool // what follows is set
	find   sync.Mutex
	kernel *kernel.Kernel
	layers map[string]*layer
}

// wanted are those of this kernel; nil without.
var wanted *changes

// parseChanges reads ChangesAnnotation; nil where there is none.
func parseChanges(annotation string) (*changes, error) {
	if annotation == "" {
		return nil, nil
	}
	c := &changes{layers: map[string]*layer{}}
	if err := json.Unmarshal([]byte(annotation), &c.Changes); err != nil {
		return nil, fmt.Errorf("whose changes are asked for: %w", err)
	}
	var err error
	if c.socket, err = strconv.Atoi(os.Getenv(changesVariable)); err != nil {
		return nil, errors.New("changes are asked for on a socket that is missing")
	}
	return c, nil
}

// hold has the first system call of all look for the mounts: there is no code yet that
// could have moved them, and nothing was changed. A kernel that goes on from a snapshot
// finds those that are still in their places.
func (c *changes) hold(table *kernel.SyscallTable) {
	for number, call := range table.Table {
		do := call.Fn
		call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if !c.found.Load() {
				c.look(t)
			}
			return do(t, number, args)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// look finds the mounts. They are kept from now on, also when the last program has ended.
func (c *changes) look(t *kernel.Task) {
	c.find.Lock()
	defer c.find.Unlock()
	if c.found.Load() {
		return
	}
	c.kernel = t.Kernel()
	ctx := c.kernel.SupervisorContext()
	creds := auth.NewRootCredentials(c.kernel.RootUserNamespace())
	root := t.GetMountNamespace().Root(ctx) // whose reference keeps what is mounted in place
	defer root.DecRef(ctx)
	for _, target := range c.Targets {
		mount, err := c.kernel.VFS().GetDentryAt(ctx, creds, &vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(target)}, &vfs.GetDentryOptions{})
		if err != nil {
			continue
		}
		upper, ok := upperOf(mount.Mount().Filesystem().Impl())
		if !ok || mount.Dentry() != mount.Mount().Root() {
			mount.DecRef(ctx)
			continue
		}
		c.layers[target] = &layer{vfs: c.kernel.VFS(), creds: creds, mount: mount, upper: upper, mounts: slices.Contains(c.Covered, target)}
	}
	c.found.Store(true)
	if !c.AtEnd {
		go c.serve()
	}
}

// serve answers the shim until it hangs up.
func (c *changes) serve() {
	s, err := unet.NewSocket(c.socket)
	if err != nil {
		return
	}
	defer s.Close()
	for message := make([]byte, unix.PathMax); ; {
		r := s.Reader(true)
		r.EnableFDs(1)
		n, err := r.ReadVec([][]byte{message})
		if err != nil || n == 0 {
			return
		}
		files, err := r.ExtractFDs()
		if err != nil || len(files) != 1 {
			r.CloseFDs()
			return
		}
		answer := LayerWritten
		if err := c.write(string(message[:n]), os.NewFile(uintptr(files[0]), "layer")); err != nil {
			answer = err.Error()
		}
		if c.AtEnd {
			continue
		}
		if _, err := s.Write([]byte(answer)); err != nil {
			return
		}
	}
}

var errNoLayer = errors.New(NoLayer)

// write writes one layer to a file, which it closes. What runs inside stands still
// meanwhile.
func (c *changes) write(target string, to *os.File) (err error) {
	defer func() { err = errors.Join(err, to.Close()) }()
	if !c.found.Load() {
		if !slices.Contains(c.Targets, target) {
			return errNoLayer
		}
		return tar.NewWriter(to).Close() // no program has made a system call
	}
	l := c.layers[target]
	if l == nil {
		return errNoLayer
	}
	if !c.AtEnd {
		c.kernel.Pause()
		defer c.kernel.Unpause()
	}
	return l.writeTar(c.kernel.SupervisorContext(), to)
}

// takePassed takes a descriptor that the shim passes under a number of ours out of args,
// for this process and, by a variable, for the kernels that come after it with arguments
// of gVisor's making.
func takePassed(args []string, number int, variable string) []string {
	return slices.DeleteFunc(args, func(a string) bool {
		rest, ok := strings.CutPrefix(a, "--pass-fd=")
		host, passed, _ := strings.Cut(rest, ":")
		if !ok || passed != strconv.Itoa(number) {
			return false
		}
		_ = os.Setenv(variable, host)
		return true
	})
}
