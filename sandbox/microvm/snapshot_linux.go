// SPDX-License-Identifier: Apache-2.0

package microvm

import (
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
	memoryFile  = "memory"       // the machine's memory and devices, as its monitor has them
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
	// Size and Digest are those of its memory. QEMU trusts what it reads.
	Size   int64  `json:"size,omitempty"`
	Digest string `json:"digest,omitempty"`
	// Packed are the sizes of its disks as they were packed, by their serials.
	Packed map[string]int64 `json:"packed,omitempty"`

	dir string
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
	if !i.stands {
		defer func() {
			if end && err == nil {
				return
			}
			if undone := i.goOn(context.WithoutCancel(ctx), nil); undone != nil {
				i.box.stop() // it would neither end nor answer
				err = errors.Join(err, undone)
			}
		}()
		unfrozen, err := i.stop(ctx)
		if err := errors.Join(unfrozen, err); err != nil {
			return unwritten(err)
		}
	}
	if !i.frozen { // a copy would go on before it is told what it is
		return unwritten(errors.New("what runs inside does not stand still"))
	}
	return write()
}

func unwritten(err error) error {
	return &sandbox.Error{Op: "snapshot", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine cannot be written down", Hint: "see whether the disk of the state directory is full", Cause: err}
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
	to := &summing{w: f, sum: sha256.New(), left: maxStream(i.box.made.Memory)}
	err = i.monitor.save(ctx, to)
	if errors.Is(err, errStalled) { // so it is with all else that it is asked
		i.box.stop()
	}
	w.Mark, w.Size, w.Digest = i.mark.String(), to.size, hex.EncodeToString(to.sum.Sum(nil))
	return errors.Join(err, f.Close())
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

// Restore makes a machine that goes on from a snapshot.
func (d *Driver) Restore(ctx context.Context, s *sandbox.Spec, dir string) (sandbox.Instance, error) {
	if !d.vmm.snapshots() && d.opts.monitor == withFirecracker {
		return nil, errNoSnapshots
	}
	if !d.vmm.snapshots() { // QEMU's, from before there was a Firecracker here
		d = &Driver{opts: d.opts, kernels: d.kernels, vmm: &qemu{machine: d.opts.Machine}}
	}
	w, err := readWritten(dir)
	if err != nil {
		return nil, err
	}
	return d.start(ctx, s, w)
}

// goOnFrom has a machine that has not begun go on from its memory.
func (i *instance) goOnFrom(ctx context.Context, w *written, s *sandbox.Spec) error {
	f, err := os.Open(filepath.Join(w.dir, memoryFile))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if err := i.monitor.load(ctx, io.TeeReader(io.LimitReader(f, w.Size), sum)); err != nil {
		// What passes, as a disk that cannot be read, is no reason to lose the memory.
		if errors.Is(err, errRefused) || errors.Is(err, errMonitorGone) && i.box.gaveUp(ctx) {
			err = fmt.Errorf("%w: %w", sandbox.ErrMisfit, err)
		}
		return err
	}
	// Up to here the monitor has it, in its box, and nothing of it has run.
	if hex.EncodeToString(sum.Sum(nil)) != w.Digest {
		return misfit("it is not as it was written")
	}
	return i.goOn(ctx, s)
}

func misfit(why string) error { return fmt.Errorf("%w: %s", sandbox.ErrMisfit, why) }
