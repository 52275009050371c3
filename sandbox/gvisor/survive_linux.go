// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/internal/linux/cgroup"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

var _ sandbox.Survivor = (*instance)(nil)

// bequest is what the shim of a sandbox that may outlive its owner gets for the
// next one.
type bequest struct {
	socket, stream, log *os.File
	hold, far           *os.File // nil without
	root                *os.File // whose lock keeps the tree from being cleared away; nil for an image in one file
	self                []byte
}

// bequeath makes it, where the state directory's file system has sockets. Elsewhere
// there is none, and the sandbox cannot outlive its owner. The files but the socket
// are the caller's.
func (i *instance) bequeath(ours, log *os.File) error {
	self, err := json.Marshal(i.self)
	if err != nil {
		return err
	}
	b := &bequest{stream: ours, log: log, hold: i.box.spec.Hold, root: i.box.spec.Root.Dir, self: self}
	if n := i.box.spec.Network; n != nil {
		b.far = n.Far
	}
	dir, err := openOwn(i.box.spec.StateDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: inside(dir, protocol.ClaimName)})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return stateError(err)
	}
	l.SetUnlinkOnClose(false)
	b.socket, err = l.File()
	l.Close()
	if err != nil {
		return stateError(err)
	}
	i.box.opened = append(i.box.opened, b.socket)
	i.box.bequest, i.survives = b, true
	return nil
}

// handOver adds it to an order and its files.
func (b *bequest) handOver(o *protocol.Order, files []*os.File) []*os.File {
	add := func(f *os.File) int {
		if f == nil {
			return 0
		}
		files = append(files, f)
		return len(files) - 1
	}
	add(b.root) // the shim holds all that comes
	o.Handover = &protocol.Handover{Socket: add(b.socket), Stream: add(b.stream), Log: add(b.log), Hold: add(b.hold), Far: add(b.far), Self: b.self}
	return files
}

// Outlive lets the sandbox stay without its owner. What is written here reaches
// the shim also when this process is killed the moment after.
func (i *instance) Outlive(grace time.Duration, until time.Time) error {
	if !i.survives {
		return sandbox.Errorf(sandbox.ErrUnsupported, "sandbox "+i.box.spec.ID, "it was made to end with its owner, or its state directory has no sockets")
	}
	return i.box.shim.command(protocol.Command{Kind: protocol.Outlive, Grace: max(grace, 0), Until: until})
}

// Leave lets go of the sandbox.
func (i *instance) Leave() error {
	if i.left.Swap(true) {
		return nil
	}
	i.box.shim.leave()
	<-i.ended
	for _, f := range i.box.opened {
		f.Close()
	}
	i.closeLog()
	return i.stream.Close()
}

// leave hangs up without ending anything.
func (s *shimProcess) leave() {
	s.stopOnce.Do(func() {
		s.conn.Close()
		s.forget()
	})
}

// Adopt takes over a sandbox whose owner is gone.
func (d *Driver) Adopt(ctx context.Context, spec *sandbox.Spec) (_ *sandbox.Adopted, err error) {
	if err := sandbox.CheckID(spec.ID); err != nil {
		return nil, err
	}
	none := func(err error) error {
		return &sandbox.Error{Op: "adopt sandbox " + spec.ID, Kind: sandbox.ErrNotFound, Problem: "nothing of it lives", Cause: err}
	}
	conn, err := dialShim(spec.StateDir)
	if err != nil {
		return nil, none(err)
	}
	legacy, files, err := claim(ctx, conn, spec.ID)
	if err != nil {
		conn.Close()
		if errors.Is(err, sandbox.ErrConflict) || errors.Is(err, sandbox.ErrUnsupported) {
			return nil, err
		}
		return nil, none(err)
	}
	defer func() {
		if err != nil { // it waits for another one, for the rest of its time
			conn.Close()
			for _, f := range files {
				f.Close()
			}
		}
	}()
	i, err := heir(spec, conn, legacy)
	if err != nil {
		return nil, err
	}
	file := func(n int) *os.File {
		if n < 1 || n > len(files) {
			return nil
		}
		return files[n-1]
	}
	mark, err := wire.ParseMark(i.self.Mark)
	if err != nil || file(legacy.Stream) == nil {
		return nil, none(errors.Join(err, errors.New("its stream is missing")))
	}
	if err := i.take(file(legacy.Stream), mark); err != nil {
		return nil, err
	}
	go i.follow(make(chan struct{}))
	return &sandbox.Adopted{Instance: i, Hold: file(legacy.Hold), Far: file(legacy.Far)}, nil
}

// heir is the sandbox as its new owner has it, but for its stream.
func heir(spec *sandbox.Spec, conn *net.UnixConn, l *protocol.Legacy) (*instance, error) {
	i := &instance{ended: make(chan struct{}), reading: make(chan struct{}, 1), survives: true}
	if err := json.Unmarshal(l.Self, &i.self); err != nil {
		return nil, err
	}
	// While it has the other end of conn its number is its own.
	p, err := newStranger(l.PID)
	if err != nil {
		return nil, err
	}
	b := &box{
		spec: spec, began: time.Now(),
		shim: &shimProcess{process: p, conn: conn, in: json.NewDecoder(bufio.NewReader(conn)), ordered: true},
	}
	if l.Cgroup != nil {
		if b.group, err = cgroup.Open(l.Cgroup.Dirs); err != nil {
			p.fd.Close()
			return nil, err
		}
	}
	i.box = b
	return i, nil
}

// claim asks the shim for its sandbox.
func claim(ctx context.Context, conn *net.UnixConn, id string) (*protocol.Legacy, []*os.File, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := protocol.Send(conn, &protocol.Claim{Version: protocol.Version, ID: id}, nil); err != nil {
		return nil, nil, err
	}
	var l protocol.Legacy
	files, err := protocol.Receive(conn, &l)
	switch {
	case err != nil:
		return nil, nil, err
	case l.Version != protocol.Version && (l.Refused == "" || l.Refused == protocol.Foreign), l.Refused == protocol.Foreign:
		for _, f := range files {
			f.Close()
		}
		return nil, nil, endForeign(ctx, conn, id, &l)
	case l.Refused == protocol.Owned:
		return nil, nil, &sandbox.Error{Op: "adopt sandbox " + id, Kind: sandbox.ErrConflict, Problem: "it has an owner, who lives", Hint: "end that process first"}
	case l.Refused != "":
		return nil, nil, fmt.Errorf("it is not given: %s", l.Refused)
	}
	return &l, files, nil
}

// foreignTimeout is how long a shim of another version may take to end its sandbox.
const foreignTimeout = 20 * time.Second

// endForeign ends a sandbox whose shim is of another version, and says so: neither can
// be sure to understand the other. The shim takes away what it has, as it does when no
// owner comes.
func endForeign(ctx context.Context, conn *net.UnixConn, id string, l *protocol.Legacy) error {
	e := &sandbox.Error{Op: "adopt sandbox " + id, Kind: sandbox.ErrUnsupported, Hint: "end or pause what runs before another version of caisson is started",
		Problem: fmt.Sprintf("it was made by another version of caisson, with which this one cannot speak (%d, and %d here), and was ended", l.Version, protocol.Version)}
	p, err := newStranger(l.PID)
	if errors.Is(err, unix.ESRCH) {
		return e
	}
	if err != nil {
		e.Cause = err
		return e
	}
	if l.Refused == "" { // its owner is this process now
		e.Cause = json.NewEncoder(conn).Encode(protocol.Command{Kind: protocol.Outlive})
	}
	conn.Close()
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() { p.wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
		p.slay() // what holds the sandbox ends with it
		select {
		case <-ended:
		case <-time.After(killGrace): // it ends when what it waits for answers
		}
	}
	return e
}

// dialShim connects to the socket in a state directory, and makes sure, on what it
// has opened, that no other user can have put it there.
func dialShim(stateDir string) (*net.UnixConn, error) {
	dir, err := openOwn(stateDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), protocol.ClaimName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), protocol.ClaimName)
	defer socket.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != euid {
		return nil, errors.New("its socket is not this user's")
	}
	return net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: "/proc/self/fd/" + strconv.Itoa(fd)})
}

// openOwn opens a directory that is this user's alone.
func openOwn(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stateError(err)
	}
	dir := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (int(st.Uid) != euid || st.Mode&0o077 != 0) {
		err = errors.New(name + " is not this user's alone")
	}
	if err != nil {
		dir.Close()
		return nil, stateError(err)
	}
	return dir, nil
}

// inside names something in an open directory, whose path may be longer than the
// address of a socket.
func inside(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}

// hungUp says whether err is that of a connection whose other end is gone.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
