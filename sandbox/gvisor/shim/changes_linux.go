// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
	"github.com/caisson-run/caisson/sandbox/gvisor/sentry"
)

// The kernel writes the layers of copy-on-write mounts itself, to files that it is sent
// over a socket (sentry.ChangesFD). Those that are wanted at the end are sent before it
// starts, and wait in the socket: a kernel that is killed has not written them, and who
// reads them sees their end.

// openChanges makes the socket where the order wants changes, and adds the kernel's end
// to what is passed to it, which done closes here.
func (w *instance) openChanges(passed map[int]*os.File) (done func(), err error) {
	if w.order.Changes == nil {
		return func() {}, nil
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "changes")
	ours := os.NewFile(uintptr(fds[0]), "changes")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, err
	}
	w.changes = conn.(*net.UnixConn)
	passed[sentry.ChangesFD] = theirs
	if len(w.order.Changes.Layers) > 0 {
		files := make([]*os.File, len(w.order.Changes.Layers))
		for i, l := range w.order.Changes.Layers {
			if l.File < protocol.FirstFile || l.File >= len(w.files) {
				theirs.Close()
				return nil, errors.New("a file for a layer did not come with the order")
			}
			files[i] = w.files[l.File]
		}
		go w.askAll(files) // more than fit into a socket wait for the end
	}
	return func() { theirs.Close() }, nil
}

// askAll asks for the layers that are wanted at the end, and hangs up: no more will be.
func (w *instance) askAll(files []*os.File) {
	for i, l := range w.order.Changes.Layers {
		_ = w.ask(l.Target, files[i]) // where the kernel is gone, closing says so
	}
	w.changes.Close()
}

// ask sends the kernel a target and the file for its layer, which this process has no
// more use for.
func (w *instance) ask(target string, to *os.File) error {
	_, _, err := w.changes.WriteMsgUnix([]byte(target), unix.UnixRights(int(to.Fd())), nil)
	return errors.Join(err, to.Close())
}

var errNoLayer = errors.New(sentry.NoLayer)

// readLayer has the running kernel write a layer, and returns when it has.
func (w *instance) readLayer(target string, to *os.File) error {
	defer to.Close()
	w.layers.Lock()
	defer w.layers.Unlock()
	if w.changes == nil {
		return errNoLayer
	}
	if w.runningKernel() == nil {
		return errors.New("the sandbox does not run")
	}
	if err := w.ask(target, to); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, err := w.changes.Read(answer)
	switch said := string(answer[:n]); {
	case err != nil:
		return fmt.Errorf("the kernel has ended: %w", err)
	case said == sentry.NoLayer:
		return errNoLayer
	case said != sentry.LayerWritten:
		return errors.New(said)
	}
	return nil
}

// awaitStop waits until no program runs any more, where layers are written then, and
// tells the owner. The function that it returns is for after the kernel's end: when the
// programs had ended.
func (w *instance) awaitStop(status *statusPipe) (over func() time.Time) {
	if w.order.Changes == nil || len(w.order.Changes.Layers) == 0 {
		return time.Now
	}
	at := make(chan time.Time, 1)
	go func() {
		status.wait()
		now := time.Now()
		w.mu.Lock()
		w.running, w.stopped = false, true
		w.mu.Unlock()
		w.tell(protocol.Stopped)
		at <- now
	}()
	return func() time.Time { return <-at }
}

// stop ends all programs and leaves the kernel, which writes layers then. One that does
// not do it is the owner's to kill.
func (w *instance) stop() {
	w.mu.Lock()
	k, running, stopped := w.kernel, w.running, w.stopped
	w.mu.Unlock()
	switch {
	case running:
		_ = k.SignalContainer(w.order.ID, unix.SIGKILL, true)
	case !stopped:
		w.kill("") // no program has started
	}
}
