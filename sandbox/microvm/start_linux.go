// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// bootTimeout is how long a machine may take until its agent begins: an emulated
// processor on a busy host was seen to take 20 seconds.
const bootTimeout = 3 * time.Minute

// Start boots a machine and returns when its agent begins.
func (d *Driver) Start(ctx context.Context, s *sandbox.Spec) (_ sandbox.Instance, err error) {
	if err := check(s); err != nil {
		return nil, err
	}
	if why, remedy := d.unusable(ctx); why != "" {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: why, Hint: remedy}
	}
	if s.Limits.Memory == 0 {
		return nil, &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnsupported, Problem: "a virtual machine has a size", Hint: "set a limit of memory"}
	}
	i := &instance{id: s.ID, limits: s.Limits, console: newConsole(), ended: make(chan struct{})}
	sockets, err := listen(s.StateDir, s.Network != nil)
	if err != nil {
		return nil, err
	}
	defer sockets.close()
	if i.box, err = d.startBox(ctx, s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = i.failed(err)
			i.box.stop()
			<-i.box.ended
			i.closeAll()
		}
	}()
	booting, cancel := context.WithTimeoutCause(ctx, bootTimeout, errSlow)
	defer cancel()
	if err := i.connect(booting, sockets); err != nil {
		return nil, err
	}
	if s.Network != nil {
		c, err := sockets.accept(booting, networkSocket, i.box.ended)
		if err != nil {
			return nil, err
		}
		if i.nic, err = newNIC(s.Network, c); err != nil {
			c.Close()
			return nil, err
		}
	}
	mark := wire.NewMark()
	if err := i.configure(booting, config(s, mark)); err != nil {
		return nil, err
	}
	i.opener = wire.NewOpener(i.stream, mark)
	i.base = i.box.now()
	go i.follow()
	return i, nil
}

var errSlow = fmt.Errorf("it did not boot within %v", bootTimeout)

// sockets are where a monitor connects to.
type sockets struct {
	dir       string
	listeners map[string]*net.UnixListener
}

// listen makes the sockets of a machine. Their directory is the box's, and nothing else
// is in it; a socket's name may have 107 bytes (unix(7)), a state directory's more.
func listen(stateDir string, network bool) (*sockets, error) {
	s := &sockets{dir: socketDir(stateDir), listeners: map[string]*net.UnixListener{}}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, unkept(err)
	}
	dir, err := os.Open(s.dir)
	if err != nil {
		return nil, unkept(err)
	}
	defer dir.Close()
	names := []string{monitorSocket, agentSocket, consoleSocket}
	if network {
		names = append(names, networkSocket)
	}
	for _, name := range names {
		short := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false) // with the directory
			s.listeners[name] = l
			err = os.Chmod(filepath.Join(s.dir, name), 0o666) // who may enter the directory
		}
		if err != nil {
			s.close()
			return nil, unkept(err)
		}
	}
	return s, nil
}

func (s *sockets) close() {
	for _, l := range s.listeners {
		l.Close()
	}
}

// accept waits for the monitor at one of them.
func (s *sockets) accept(ctx context.Context, name string, gone <-chan struct{}) (*net.UnixConn, error) {
	l := s.listeners[name]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-gone:
			cancel(errMonitorGone)
		case <-ctx.Done():
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := l.AcceptUnix()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c, err
}

// connect waits for the monitor at all of them, and greets it.
func (i *instance) connect(ctx context.Context, s *sockets) error {
	var conns []*net.UnixConn
	for _, name := range []string{monitorSocket, agentSocket, consoleSocket} {
		c, err := s.accept(ctx, name, i.box.ended)
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return err
		}
		conns = append(conns, c)
	}
	i.stream, i.serial, i.control = conns[1], conns[2], conns[0]
	i.heard = make(chan struct{})
	go func() {
		defer close(i.heard)
		_, _ = io.Copy(i.console, i.serial)
	}()
	var err error
	i.monitor, err = newMonitor(ctx, i.control)
	return err
}

// configure tells the machine what it is to be, and waits until its agent begins.
func (i *instance) configure(ctx context.Context, c *boot.Config) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = i.stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-i.box.ended:
			_ = i.stream.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	if _, err := i.stream.Write(append(b, '\n')); err != nil {
		return i.told(ctx, err)
	}
	line, err := readLine(i.stream)
	if err != nil {
		return i.told(ctx, err)
	}
	var a boot.Answer
	if err := json.Unmarshal(line, &a); err != nil {
		return errors.New("the guest answers nonsense")
	}
	if a.Error != "" {
		return errors.New("the guest says: " + sandbox.Quoted(a.Error))
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

// told is why a wait for the guest ended.
func (i *instance) told(ctx context.Context, err error) error {
	select {
	case <-i.box.ended:
		return errMonitorGone
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// maxAnswer is in bytes.
const maxAnswer = 64 << 10

// readLine reads no further than a line's end: what follows is the agent's.
func readLine(r io.Reader) ([]byte, error) {
	var line []byte
	var one [1]byte
	for len(line) < maxAnswer {
		n, err := r.Read(one[:])
		if n == 1 && one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[:n]...)
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the guest's answer is too long")
}

// failed is why a machine did not start, with what its monitor or its console says.
func (i *instance) failed(err error) error {
	e := &sandbox.Error{Op: "start sandbox", Kind: sandbox.ErrUnavailable, Problem: "the virtual machine did not start: " + err.Error(), Cause: err}
	if errors.Is(err, errMonitorGone) {
		i.box.stop()
		<-i.box.ended
		e.Problem = "the virtual machine did not start: " + i.box.why()
		if i.box.clean() {
			e.Problem = "the virtual machine ended before its agent began"
		}
	}
	if said := i.console.lastLines(8); said != "" {
		e.Problem += "; its console ends with\n" + said
	}
	return e
}
