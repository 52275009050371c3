// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

var (
	_ sandbox.Snapshotter     = (*instance)(nil)
	_ sandbox.FileSnapshotter = (*instance)(nil)
	_ sandbox.Restorer        = (*Driver)(nil)
)

// What is in a snapshot, beside the disks that belong to the machine.
const (
	memoryFile  = "memory"       // the machine's memory, as its monitor has it
	devicesFile = "devices"      // what its devices are, where that is not in there
	machineFile = "machine.json" // a written
)

// written is a machine that was written down.
type written struct {
	made
	// Parts are how its disk is divided.
	Parts []boot.Part `json:"parts,omitempty"`
	// Files says that there are its disks alone: it begins anew with them.
	Files bool `json:"files,omitempty"`
	// Mark begins sessions with its agent.
	Mark string `json:"mark,omitempty"`
	// Size and Digest are those of its memory, DevicesSize and DevicesDigest those of its
	// devices, where they lie beside it. A monitor trusts what it reads.
	Size          int64  `json:"size,omitempty"`
	Digest        string `json:"digest,omitempty"`
	DevicesSize   int64  `json:"devices_size,omitempty"`
	DevicesDigest string `json:"devices_digest,omitempty"`
	// Packed are the sizes of its disks as they were packed, by their serials.
	Packed map[string]int64 `json:"packed,omitempty"`

	dir             string
	memory, devices *os.File // while a machine goes on from them
}

// maxMachineFile is in bytes.
const maxMachineFile = 64 << 10

// readWritten reads what a snapshot says of itself.
func readWritten(dir string) (*written, error) {
	w := &written{dir: dir}
	f, err := os.Open(filepath.Join(dir, machineFile))
	if err == nil {
		defer f.Close()
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, maxMachineFile)); err == nil {
			err = json.Unmarshal(b, w)
		}
	}
	if err == nil && !w.Files {
		_, err = wire.ParseMark(w.Mark)
	}
	var failed *fs.PathError
	if errors.As(err, &failed) && !errors.Is(err, fs.ErrNotExist) { // the disk's, and may pass
		return nil, &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: "its snapshot cannot be read", Cause: err}
	}
	if err != nil {
		return nil, notAsWritten(machineFile, err)
	}
	for name, size := range w.Packed {
		if err := w.sized(name, size); err != nil {
			return nil, err
		}
	}
	if w.Files {
		return w, nil
	}
	if err := w.sized(memoryFile, w.Size); err != nil {
		return nil, err
	}
	if w.DevicesSize == 0 {
		return w, nil
	}
	if err := w.sized(devicesFile, w.DevicesSize); err != nil {
		return nil, err
	}
	return w, nil
}

// sized refuses a file that is missing, or was cut.
func (w *written) sized(name string, size int64) error {
	info, err := os.Lstat(filepath.Join(w.dir, filepath.Base(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: "its snapshot cannot be read", Cause: err}
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return notAsWritten(name, err)
	}
	return nil
}

func notAsWritten(name string, err error) error {
	return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnavailable, Problem: "its " + sandbox.Quoted(name) + " is not on the disk as it was written there",
		Hint: "look at the disk of the state directory", Cause: errors.Join(sandbox.ErrMisfit, err)}
}

// remembers says whether a machine goes on from its memory; a nil one is new.
func (w *written) remembers() bool { return w != nil && !w.Files }

// Snapshot writes the machine down while it stands still.
func (i *instance) Snapshot(ctx context.Context, dir string, end bool) error {
	return i.standing(ctx, end, func() error { return i.write(ctx, dir, i.memory) })
}

// SnapshotFiles writes its disks alone.
func (i *instance) SnapshotFiles(ctx context.Context, dir string, end bool) error {
	return i.standing(ctx, end, func() error {
		return i.write(ctx, dir, func(_ context.Context, _ string, w *written) error { w.Files = true; return nil })
	})
}

// standing writes a machine down that stands still meanwhile, and afterwards where it did
// before or is to end. One that cannot go on ends.
func (i *instance) standing(ctx context.Context, end bool, write func() error) (err error) {
	i.pausing.Lock()
	defer i.pausing.Unlock()
	if i.stands {
		if err := i.settleStanding(ctx); err != nil {
			return err
		}
		return write()
	}
	defer func() {
		if end && err == nil || !i.stands {
			return
		}
		if undone := i.goOn(context.WithoutCancel(ctx), nil); undone != nil {
			i.box.stop() // it would neither end nor answer
			err = errors.Join(err, undone)
		}
	}()
	if err := i.settleRunning(ctx); err != nil {
		return err
	}
	return write()
}

// flushTimeout is long: a disk may have a bound on its speed.
const flushTimeout = time.Minute

// flush writes to the disks what is to be written, within a time.
func (i *instance) flush(ctx context.Context, within time.Duration) error {
	return i.order(ctx, boot.Flush, within)
}

// settle is flush for a machine whose sandbox stands still. Its processors run meanwhile, and
// are stopped then.
func (i *instance) settle(ctx context.Context, within time.Duration) error {
	if i.flushed {
		return nil
	}
	if err := i.told(i.monitor.resume(ctx)); err != nil {
		return err
	}
	err := i.flush(ctx, within)
	i.flushed = err == nil
	return errors.Join(err, i.halt(ctx))
}

// settleRunning has a sandbox that runs stand still, with its disks written. Most is written
// out before: a file system may be a process of the sandbox (FUSE), which answers nothing once
// it stands still.
func (i *instance) settleRunning(ctx context.Context) error {
	if err := i.flush(ctx, flushTimeout); err != nil {
		return unflushed(err)
	}
	if err := i.freeze(ctx); err != nil { // a copy would go on before it is told what it is
		return moving(err)
	}
	if err := i.settle(ctx, flushTimeout); err != nil {
		return unflushed(err)
	}
	return nil
}

// settleStanding has a machine's disks written that was told to stand still before they were.
// Where that takes long, or something inside does not stand still, the sandbox runs meanwhile.
// It stands still afterwards, after an error too.
func (i *instance) settleStanding(ctx context.Context) error {
	why := moving
	if i.frozen {
		if i.settle(ctx, i.freezeTime()) == nil {
			return nil
		}
		why = unflushed
	}
	again, cancel := context.WithTimeoutCause(ctx, 2*flushTimeout, errOrderTimeout)
	defer cancel()
	i.frozen = false // a guest may do what it was told after that was given up
	err := i.goOn(again, nil)
	if err == nil {
		err = i.settleRunning(again)
	} else {
		err = why(err)
	}
	if err == nil {
		return nil
	}
	if !i.stands {
		_ = i.freeze(context.WithoutCancel(ctx))
	}
	return errors.Join(err, i.halt(ctx))
}

func unwritten(err error) error {
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine cannot be written down", Hint: "see whether the disk of the state directory is full", Cause: err}
}

// moving is of a sandbox that does not stand still.
func moving(err error) error {
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "what runs in the virtual machine does not stand still",
		Hint: "a process may wait for another that does, as for a file system of its own (FUSE): end it, and try again", Cause: errors.Join(sandbox.ErrRunsOn, err)}
}

func unflushed(err error) error {
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine does not write its files to its disks",
		Hint: "a file system inside may not answer (FUSE), or --io may be low: end what writes much, and try again", Cause: errors.Join(sandbox.ErrRunsOn, err)}
}

// write writes a machine down that stands still: its memory, where that is wanted, its
// disks, and what it was.
func (i *instance) write(ctx context.Context, dir string, memory func(context.Context, string, *written) error) error {
	w := &written{made: i.box.made, Parts: i.parts, Packed: map[string]int64{}}
	err := memory(ctx, dir, w)
	for _, name := range i.box.kept {
		if err == nil {
			w.Packed[name], err = packDisk(filepath.Join(dir, name), filepath.Join(i.box.dir, name))
		}
	}
	var b []byte
	if err == nil {
		b, err = json.Marshal(w)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, machineFile), b, 0o600)
	}
	if err != nil {
		return unwritten(err)
	}
	return nil
}

// memory writes the machine's memory.
func (i *instance) memory(ctx context.Context, dir string, w *written) error {
	f, err := os.OpenFile(filepath.Join(dir, memoryFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	kept := &sparse{f: f}
	to := &summing{w: kept, sum: sha256.New(), left: maxStream(i.box.made.Memory)}
	devices, err := i.monitor.save(ctx, i.orders, to)
	if errors.Is(err, errStalled) { // so it is with all else that it is asked
		i.box.stop()
	}
	if errors.Is(err, errLost) { // another one begins right, on the next connection
		i.opener.Drop()
	}
	w.Mark, w.Size, w.Digest = i.mark.String(), to.size, hex.EncodeToString(to.sum.Sum(nil))
	if err == nil && len(devices) > 0 {
		sum := sha256.Sum256(devices)
		w.DevicesSize, w.DevicesDigest = int64(len(devices)), hex.EncodeToString(sum[:])
		err = os.WriteFile(filepath.Join(dir, devicesFile), devices, 0o600)
	}
	return errors.Join(err, kept.end(), f.Close())
}

// maxStream bounds what a monitor writes of a machine of that many MiB: its memory, some
// bytes for each page of it, and its devices.
func maxStream(memory int64) int64 { return memory<<20 + memory<<14 + 64<<20 }

// summing is a writer that counts, and takes no more than is left.
type summing struct {
	w    io.Writer
	sum  hash.Hash
	size int64
	left int64
}

func (s *summing) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, errors.New("the machine monitor writes more than its machine has")
	}
	n, err := s.w.Write(p)
	s.sum.Write(p[:n])
	s.size += int64(n)
	s.left -= int64(n)
	return n, err
}

// Restore makes a machine that goes on from a snapshot, with the monitor that has written it.
func (d *Driver) Restore(ctx context.Context, s *sandbox.Spec, dir string) (sandbox.Instance, error) {
	w, err := readWritten(dir)
	if err == nil {
		d, err = d.by(w)
	}
	if err == nil {
		err = w.open()
	}
	if err != nil {
		return nil, err
	}
	defer w.close()
	return d.start(ctx, s, w)
}

// by is the driver with the monitor that has written a machine down, which knows its memory
// alone. Files are any monitor's.
func (d *Driver) by(w *written) (*Driver, error) {
	// Before there was another it was not named.
	if name := cmp.Or(w.Kind, qemuName); w.remembers() && name != d.vmm.name() {
		o, _ := d.vmm.(*oneOf)
		if o == nil {
			return nil, misfits("by " + sandbox.Quoted(name) + ", another machine monitor")
		}
		at := slices.IndexFunc(o.all, func(v vmm) bool { return v.name() == name })
		if at < 0 {
			return nil, misfits("by " + sandbox.Quoted(name) + ", another machine monitor")
		}
		d = &Driver{opts: d.opts, kernels: d.kernels, vmm: o.all[at], kvm: d.kvm}
	}
	// A program that is not found may be back: PATH was another, say.
	if _, why, remedy := d.vmm.program(); w.remembers() && why != "" {
		return nil, &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnsupported, Problem: "its memory was kept by " + d.vmm.name() + ", and " + why, Hint: remedy}
	}
	return d, nil
}

// open opens what a machine goes on from, for as long as it takes to do so. Its devices are
// read whole: they are few.
func (w *written) open() (err error) {
	if !w.remembers() {
		return nil
	}
	if w.memory, err = os.Open(filepath.Join(w.dir, memoryFile)); err != nil {
		return unkept(err)
	}
	if w.DevicesSize == 0 {
		return nil
	}
	if w.devices, err = os.Open(filepath.Join(w.dir, devicesFile)); err != nil {
		w.close()
		return unkept(err)
	}
	sum := sha256.New()
	if _, err = io.Copy(sum, io.NewSectionReader(w.devices, 0, w.DevicesSize)); err != nil {
		err = unkept(err)
	} else if hex.EncodeToString(sum.Sum(nil)) != w.DevicesDigest {
		err = notAsWritten(devicesFile, nil)
	}
	if err != nil {
		w.close()
	}
	return err
}

func (w *written) close() {
	w.memory.Close()
	w.devices.Close()
}

// checked reads what was written, and its end is an error where it is not as it was.
type checked struct {
	io.Reader
	sum    hash.Hash
	digest string
}

// Read implements io.Reader.
func (c *checked) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.sum.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(c.sum.Sum(nil)) != c.digest {
		err = misfit("it is not as it was written")
	}
	return n, err
}

// goOnFrom has a machine that has not begun go on from its memory.
func (i *instance) goOnFrom(ctx context.Context, w *written, s *sandbox.Spec) error {
	r := &checked{Reader: io.NewSectionReader(w.memory, 0, w.Size), sum: sha256.New(), digest: w.Digest}
	// Until that is over the monitor has it, in its box, and nothing of it has run.
	if err := i.monitor.load(ctx, r); err != nil {
		// What passes, as a disk that cannot be read, is no reason to lose the memory.
		if errors.Is(err, errRefused) || errors.Is(err, errMonitorGone) && i.box.gaveUp(ctx) {
			err = fmt.Errorf("%w: %w", sandbox.ErrMisfit, err)
		}
		return err
	}
	return i.goOn(ctx, s)
}

// misfits says how memory was kept that does not go on here.
func misfits(how string) error {
	return &sandbox.Error{Op: "resume sandbox", Kind: sandbox.ErrUnsupported, Problem: "its memory was kept " + how,
		Hint: "go on where it was written down, or make a new sandbox", Cause: sandbox.ErrMisfit}
}

func misfit(why string) error { return fmt.Errorf("%w: %s", sandbox.ErrMisfit, why) }
