// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	gvisor "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// instance is one gVisor sandbox from its making to its end.
type instance struct {
	order  *protocol.Order
	files  []*os.File               // that came with the order
	tell   func(protocol.EventKind) // called once the first process runs, and when none does any more
	conf   *config.Config
	spec   *specs.Spec
	group  *cgroup.Group        // nil without a control group
	box    *container.Container // set by create; for the making goroutine alone
	handed []handedFile
	own    string // where gVisor's own files lie
	behind int    // how many files behind scratch directories are ours to make

	mu      sync.Mutex
	kernel  *gvisor.Sandbox // box.Sandbox, which Destroy sets to nil under its readers
	pid     int             // the kernel process; 0 before it exists
	running bool            // the first process has been started
	stopped bool            // no program runs any more, and layers are being written
	killed  bool            // it is to end
	limit   string          // the limit it was ended for, or empty

	freezing sync.Mutex // held while the kernel is asked to stand still, or to go on
	frozen   bool       // it stands still

	layers  sync.Mutex    // held while the kernel is asked for one
	changes *net.UnixConn // the shim's end of sentry.ChangesFD; nil without
	hits    *os.File      // sentry.HitsFD; set by create

	peak int64         // the most memory that programs were seen to hold
	heap int64         // what the kernel itself was last seen to hold
	cpu  time.Duration // the most processor time that was seen, without a group

	base *protocol.Counters // read just before the first process started; nil until then
}

func newInstance(o *protocol.Order, files []*os.File, group *cgroup.Group, r *ready, tell func(protocol.EventKind)) (*instance, error) {
	w := &instance{order: o, files: files, group: group, tell: tell, spec: new(specs.Spec), own: o.StateDir}
	if err := takeStdio(files); err != nil {
		return nil, fmt.Errorf("taking over the program's input and output: %w", err)
	}
	if err := json.Unmarshal(o.Spec, w.spec); err != nil {
		return nil, fmt.Errorf("the order's spec: %w", err)
	}
	handed, err := findHanded(w.spec, files)
	if err != nil {
		return nil, err
	}
	w.handed = handed
	if err := w.findScratch(); err != nil {
		return nil, fmt.Errorf("scratch directories: %w", err)
	}
	if os.Geteuid() == 0 {
		if err := widenStage(o); err != nil {
			return nil, err
		}
		if err := stage(handed); err != nil {
			return nil, err
		}
	}
	if os.Geteuid() == 0 {
		// gVisor's own files (its state, its lock, the kernel's socket) need no
		// disk, and no other process needs them.
		w.own = ownDir
		o.Flags["root"] = filepath.Join(ownDir, filepath.Base(o.Flags["root"]))
	}
	conf, err := newConfig(r.flags, o.Flags)
	if err != nil {
		return nil, fmt.Errorf("gVisor's flags: %w", err)
	}
	w.conf = conf
	if err := w.writeBundle(); err != nil {
		return nil, fmt.Errorf("writing the bundle: %w", err)
	}
	return w, nil
}

// newConfig turns flags into gVisor's configuration, as its command line
// would.
func newConfig(fs *flag.FlagSet, flags map[string]string) (*config.Config, error) {
	for name, value := range flags {
		if err := fs.Set(name, value); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", name, value, err)
		}
	}
	return config.NewFromFlags(fs)
}

func (w *instance) bundleDir() string { return filepath.Join(w.own, "bundle") }

// writeBundle writes the spec that gVisor's gofer and sentry read. The kernel inside is
// told another first user than the creator where only the creator's is mapped.
func (w *instance) writeBundle() error {
	if err := os.Mkdir(w.bundleDir(), 0o700); err != nil {
		return err
	}
	boot := *w.spec
	if w.order.BootSpec != nil {
		var b specs.Spec
		if err := json.Unmarshal(w.order.BootSpec, &b); err != nil {
			return err
		}
		boot.Process = b.Process
	}
	data, err := json.Marshal(&boot)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.bundleDir(), "config.json"), data, 0o600)
}

// runToEnd makes the sandbox, starts it, and waits for its first process.
func (w *instance) runToEnd() (*protocol.Event, error) {
	status, err := newStatusPipe()
	if err != nil {
		return nil, err
	}
	defer status.close()
	looks, err := newBeat()
	if err != nil {
		return nil, err
	}
	if err := w.create(status); err != nil {
		looks.close()
		return nil, err
	}
	base := w.read()
	w.mu.Lock()
	w.base = &base
	w.mu.Unlock()
	begin := time.Now()
	if err := w.start(); err != nil {
		looks.close()
		return nil, err
	}
	w.tell(protocol.Started)
	go w.watchMemory(looks)
	over := w.awaitStop(status)
	ws, err := w.box.Wait()
	if err != nil {
		w.kill("")
	}
	ended := over()
	wall := ended.Sub(begin)
	looks.stop()
	n := w.counters()
	if err != nil {
		// The kernel is gone without a word: killed by us, for its memory, or
		// by another process. All of them are a SIGKILL.
		ws = unix.WaitStatus(unix.SIGKILL)
	}
	if said, ok := status.said(); ok {
		ws = said
	}
	return &protocol.Event{
		Kind: protocol.Exited, WaitStatus: uint32(ws), Limit: w.endedBy(), Error: w.heldByKernel(), Counters: &n, Wall: wall,
	}, nil
}

// create forks gofer and kernel; they are in the control group as this process
// is.
func (w *instance) create(status *statusPipe) error {
	args := container.Args{ID: w.order.ID, Spec: w.withoutLive(), BundleDir: w.bundleDir(), Attached: true, FSRestoreImagePath: w.order.Files}
	if n := w.order.ExecFile; n != 0 {
		if n >= len(w.files) {
			return errors.New("the file to execute did not come with the order")
		}
		args.ExecFile = w.files[n]
	}
	files, err := w.backScratch()
	if err != nil {
		return fmt.Errorf("files behind scratch directories: %w", err)
	}
	defer closeAll(files)
	args.PassFiles = status.passTo(maps.Clone(files))
	if err := w.openHits(args.PassFiles); err != nil {
		return fmt.Errorf("noting limits: %w", err)
	}
	changes, err := w.openChanges(args.PassFiles)
	if err != nil {
		return fmt.Errorf("asking for changes: %w", err)
	}
	defer changes()
	box, err := container.New(w.conf, args)
	if err != nil {
		return err
	}
	status.passed()
	w.box = box
	w.mu.Lock()
	w.kernel, w.pid = box.Sandbox, box.Sandbox.Getpid()
	w.mu.Unlock()
	if err := verify(w.handed, box.GoferPid.Load()); err != nil {
		return err
	}
	return detachStdio()
}

// withoutLive is the spec by which gVisor decides where to lay an overlay: over all mounts
// that are writable in it, or none. So those that are live are read-only there. What
// mounts them reads the bundle.
func (w *instance) withoutLive() *specs.Spec {
	s := *w.spec
	s.Mounts = slices.Clone(s.Mounts)
	for i, m := range s.Mounts {
		if slices.Contains(w.order.Live, m.Destination) {
			s.Mounts[i].Options = append(slices.Clone(m.Options), "ro")
		}
	}
	return &s
}

// takeStdio makes the first files this process's standard input, output and
// error output: gVisor gives its own to the first process.
func takeStdio(files []*os.File) error {
	if len(files) < protocol.FirstFile {
		return errors.New("they did not come with the order")
	}
	for i, f := range files[:protocol.FirstFile] {
		if err := unix.Dup3(int(f.Fd()), i, 0); err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// detachStdio lets go of the program's stdin, stdout and stderr, so that the
// owner sees their end when the sandbox closes them.
func detachStdio() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

func (w *instance) start() error {
	if w.isKilled() {
		return errors.New("the sandbox was ended before its program started")
	}
	begin := w.box.Start
	switch {
	case w.order.Restore != "":
		begin = w.restore
	case w.order.Network != nil:
		begin = w.startConnected
	}
	if err := begin(w.conf); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = true
	return nil
}

func (w *instance) isKilled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// kill ends everything inside at once. limit names the limit it is for, or is
// empty. It may be called at any time and any number of times.
func (w *instance) kill(limit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed = true
	if w.limit == "" {
		w.limit = limit
	}
	if w.pid > 0 {
		// The kernel process is the init of its own pid namespace: with it
		// goes every process that runs guest code.
		_ = unix.Kill(w.pid, unix.SIGKILL)
	}
}

// signal delivers sig to the first process's group, inside.
func (w *instance) signal(sig syscall.Signal) {
	if k := w.runningKernel(); k != nil { // asked without mu: kill needs it, and this may hang
		_ = k.SignalProcessGroup(w.order.ID, 1, sig)
	}
}

// endedBy names the limit that ended the sandbox.
func (w *instance) endedBy() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == "" && w.group != nil && w.group.OOMKilled() {
		return "memory"
	}
	return w.limit
}

// heldByKernel says of a sandbox that was ended for its memory that programs alone did
// not reach the limit; empty where they did.
func (w *instance) heldByKernel() string {
	if w.endedBy() != "memory" {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heap <= protocol.KernelShare(w.order.Memory) {
		return ""
	}
	return fmt.Sprintf("memory limit of %d MiB reached: gVisor's kernel held %d MiB for files, pipes and sockets", w.order.Memory>>20, w.heap>>20)
}

// cleanUp removes what the sandbox was made of, but for StateDir itself.
func (w *instance) cleanUp() {
	w.kill("")
	if w.box != nil {
		_ = w.box.Destroy()
	}
	// From here pid may belong to another process.
	w.mu.Lock()
	w.pid, w.running = 0, false
	w.mu.Unlock()
}
