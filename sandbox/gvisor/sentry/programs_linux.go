// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	calls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
)

// ProgramsAnnotation is the key in a spec's annotations under which the driver
// says, as JSON of [Programs], what may be executed inside; without it everything.
const ProgramsAnnotation = "dev.caisson.programs"

// Programs are all that may be executed, by their places in the sandbox's tree
// with no link in them. Places are as good as objects where nothing can be moved,
// which is the root and what is mounted read-only; the driver has everything else
// mounted no-exec, where the kernel inside takes no program from and maps no code.
type Programs struct {
	Files []string `json:"files,omitempty"`
	Trees []string `json:"trees,omitempty"`
	// Loaders are those of Files that only load others, as the kernel does for
	// them: executed by themselves they would take any file for their program.
	Loaders []string `json:"loaders,omitempty"`
	// Closed are directories whose other files are never mapped as code.
	Closed []string `json:"closed,omitempty"`
	// Restart says that the first process may once execute a file of no place:
	// the agent, which copies itself into memory before it does anything else.
	Restart bool `json:"restart,omitempty"`
}

// programs are Programs in force.
type programs struct {
	Programs
	restart atomic.Bool
}

// parsePrograms reads ProgramsAnnotation; nil where there is none.
func parsePrograms(annotation string) (*programs, error) {
	if annotation == "" {
		return nil, nil
	}
	p := &programs{}
	d := json.NewDecoder(strings.NewReader(annotation))
	d.DisallowUnknownFields()
	if err := d.Decode(&p.Programs); err != nil {
		return nil, fmt.Errorf("what may be executed: %w", err)
	}
	p.restart.Store(p.Restart)
	return p, nil
}

// hold has the system calls of table keep to the list.
func (p *programs) hold(table *kernel.SyscallTable) {
	for number, call := range table.Table {
		switch call.Name {
		case "execve":
			call.Fn = func(t *kernel.Task, _ uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				return p.execute(t, &image{at: linux.AT_FDCWD, name: a[0].Pointer(), argv: a[1].Pointer(), env: a[2].Pointer()})
			}
		case "execveat":
			call.Fn = func(t *kernel.Task, _ uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				return p.execute(t, &image{at: a[0].Int(), name: a[1].Pointer(), argv: a[2].Pointer(), env: a[3].Pointer(), flags: a[4].Int()})
			}
		case "mmap":
			call.Fn = p.mapped(call.Fn)
		}
		table.Table[number] = call
	}
	table.Init() // copies Table to where the kernel looks
}

// lists says whether the file at place may be executed, by itself.
func (p *programs) lists(place string) bool {
	return place != "" && !slices.Contains(p.Loaders, place) && p.names(place)
}

func (p *programs) names(place string) bool {
	return slices.Contains(p.Files, place) || slices.ContainsFunc(p.Trees, func(tree string) bool { return strings.HasPrefix(place, tree+"/") })
}

// image is what execve and execveat ask for.
type image struct {
	at              int32
	name, argv, env hostarch.Addr
	flags           int32
}

// maxScripts is how many interpreters may have one another, as in Linux.
const maxScripts = 5

// execute is execve for what is listed. It follows links and first lines of scripts
// itself, and hands the kernel the open file of the program that it has judged, so
// that nothing is looked up twice. The loader that an ELF file names is still the
// kernel's to open: by a name in a listed file, and from no place that is no-exec.
func (p *programs) execute(t *kernel.Task, i *image) (uintptr, *kernel.SyscallControl, error) {
	if i.flags&^(linux.AT_EMPTY_PATH|linux.AT_SYMLINK_NOFOLLOW) != 0 {
		return 0, nil, linuxerr.EINVAL
	}
	pathname, err := t.CopyInString(i.name, linux.PATH_MAX)
	if err != nil {
		return 0, nil, err
	}
	argv, err := words(t, i.argv)
	if err != nil {
		return 0, nil, err
	}
	env, err := words(t, i.env)
	if err != nil {
		return 0, nil, err
	}
	object, shown, closes, err := i.find(t, pathname)
	if err != nil {
		return 0, nil, err
	}
	name := shown
	for range maxScripts + 1 {
		file, script, err := p.open(t, object)
		object.DecRef(t)
		switch {
		case err != nil:
			return 0, nil, err
		case file != nil: // the kernel's from here on
			return 0, t.Execve(argv, env, i.flags, shown, file, false), nil
		case closes:
			return 0, nil, linuxerr.ENOENT // the interpreter could not open it
		}
		if argv = append(script, append([]string{name}, argv[min(1, len(argv)):]...)...); len(argv) > 1<<20 {
			return 0, nil, linuxerr.E2BIG
		}
		name = script[0]
		if object, err = find(t, vfs.VirtualDentry{}, name, true); err != nil {
			return 0, nil, err
		}
	}
	object.DecRef(t)
	return 0, nil, linuxerr.ELOOP
}

func words(t *kernel.Task, at hostarch.Addr) ([]string, error) {
	if at == 0 {
		return nil, nil
	}
	return t.CopyInVector(at, calls.ExecMaxElemSize, calls.ExecMaxTotalSize)
}

// find is the object that is asked for, and the name that the program will see. closes
// says that this name leads nowhere once it is executed.
func (i *image) find(t *kernel.Task, pathname string) (object vfs.VirtualDentry, shown string, closes bool, err error) {
	follow := i.flags&linux.AT_SYMLINK_NOFOLLOW == 0
	path := fspath.Parse(pathname)
	if i.at == linux.AT_FDCWD || path.Absolute {
		if !path.HasComponents() && !path.Absolute {
			return object, "", false, linuxerr.ENOENT
		}
		object, err = find(t, vfs.VirtualDentry{}, pathname, follow)
		return object, pathname, false, err
	}
	if !path.HasComponents() && i.flags&linux.AT_EMPTY_PATH == 0 {
		return object, "", false, linuxerr.ENOENT
	}
	dir, flags := t.FDTable().Get(i.at)
	if dir == nil {
		return object, "", false, linuxerr.EBADF
	}
	defer dir.DecRef(t)
	shown = fmt.Sprintf("/dev/fd/%d", i.at)
	if path.HasComponents() {
		shown += "/" + pathname
	}
	object, err = find(t, dir.VirtualDentry(), pathname, follow)
	return object, shown, flags.CloseOnExec, err
}

// find walks from start, or from the working directory, and has a reference to what
// it finds.
func find(t *kernel.Task, start vfs.VirtualDentry, name string, follow bool) (vfs.VirtualDentry, error) {
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	path := fspath.Parse(name)
	switch {
	case path.Absolute:
		start = root
	case !start.Ok():
		start = t.FSContext().WorkingDirectory()
		defer start.DecRef(t)
	}
	return t.Kernel().VFS().GetDentryAt(t, t.Credentials(), &vfs.PathOperation{Root: root, Start: start, Path: path, FollowFinalSymlink: follow}, &vfs.GetDentryOptions{})
}

// open judges an object. It is a program, which is given back open, or a script, whose
// interpreter and its argument are.
func (p *programs) open(t *kernel.Task, object vfs.VirtualDentry) (program *vfs.FileDescription, script []string, err error) {
	at, files := &vfs.PathOperation{Root: object, Start: object}, t.Kernel().VFS()
	stat, err := files.StatAt(t, t.Credentials(), at, &vfs.StatOptions{Mask: linux.STATX_TYPE})
	if err != nil {
		return nil, nil, err
	}
	if stat.Mode&linux.S_IFMT != linux.S_IFREG {
		return nil, nil, linuxerr.EACCES
	}
	if err := files.AccessAt(t, t.Credentials(), vfs.MayExec|vfs.MayRead, at); err != nil {
		return nil, nil, err
	}
	place, err := placeOf(t, object)
	if err != nil {
		return nil, nil, err
	}
	if !p.lists(place) && !p.restarts(t, place) {
		return nil, nil, linuxerr.EACCES
	}
	head, err := firstLine(t, at)
	if err != nil {
		return nil, nil, err
	}
	if line, ok := bytes.CutPrefix(head, []byte("#!")); ok {
		if script = interpreter(line); script == nil {
			return nil, nil, linuxerr.ENOEXEC
		}
		return nil, script, nil
	}
	// Only now no-exec counts: a script is no code, whatever it lies on.
	program, err = files.OpenAt(t, t.Credentials(), at, &vfs.OpenOptions{Flags: linux.O_RDONLY, FileExec: true})
	return program, nil, err
}

// placeOf is where an object lies in the sandbox's tree, whatever name led to it;
// empty where it has no place, as a file in memory.
func placeOf(t *kernel.Task, object vfs.VirtualDentry) (string, error) {
	root := t.MountNamespace().Root(t)
	defer root.DecRef(t)
	return t.Kernel().VFS().PathnameReachable(t, root, object)
}

// restarts says whether this is the agent, on its way into memory.
func (p *programs) restarts(t *kernel.Task, place string) bool {
	return place == "" && t.TGIDInRoot() == 1 && p.restart.CompareAndSwap(true, false)
}

// maxFirstLine is as much of a script's first line as gVisor reads.
const maxFirstLine = 127

func firstLine(t *kernel.Task, at *vfs.PathOperation) ([]byte, error) {
	file, err := t.Kernel().VFS().OpenAt(t, t.Credentials(), at, &vfs.OpenOptions{Flags: linux.O_RDONLY})
	if err != nil {
		return nil, err
	}
	defer file.DecRef(t)
	head := make([]byte, maxFirstLine)
	n, err := file.ReadFull(t, usermem.BytesIOSequence(head), 0)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	return head[:n], nil
}

// interpreter reads what follows #!: a program, and all else as one argument
// (execve(2)); nil where there is none.
func interpreter(line []byte) []string {
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	name, argument := line, []byte(nil)
	if n := bytes.IndexAny(line, " \t"); n >= 0 {
		name, argument = line[:n], bytes.TrimLeft(line[n:], " \t")
	}
	switch {
	case len(name) == 0:
		return nil
	case len(argument) == 0:
		return []string{string(name)}
	}
	return []string{string(name), string(argument)}
}

// mapped is mmap that maps no code of files in closed directories but what is listed.
func (p *programs) mapped(mmap kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, a arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		const prot, flags, fd = 2, 3, 4
		if a[prot].Int()&linux.PROT_EXEC != 0 && a[flags].Int()&linux.MAP_ANONYMOUS == 0 {
			if file := t.GetFile(a[fd].Int()); file != nil {
				place, err := placeOf(t, file.VirtualDentry())
				file.DecRef(t)
				if err != nil {
					return 0, nil, err
				}
				if p.closes(place) {
					return 0, nil, linuxerr.EACCES
				}
			}
		}
		return mmap(t, number, a)
	}
}

func (p *programs) closes(place string) bool {
	return slices.ContainsFunc(p.Closed, func(dir string) bool { return strings.HasPrefix(place, dir+"/") }) && !p.names(place)
}
