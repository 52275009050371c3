// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// A sandbox whose owner said so (protocol.Outlive) stays when the owner is gone,
// until the next one claims it or its grace is over. It is claimed on a socket in
// its own directory, which this user alone can reach; the client is judged by the
// kernel's word besides. There is one owner at a time: the agent's stream cannot be
// taken out of the hands of a process that lives, and two who read it would each
// have half of what it says.

// handover is what the shim holds for the next owner.
type handover struct {
	*protocol.Handover
	id     string
	files  []*os.File // that came with the order, and stay open: locks are among them
	socket *net.UnixListener
	msg    *protocol.InitMessage
}

// newHandover takes what the order leaves to the next owner; nil when it leaves
// nothing.
func newHandover(o *protocol.Order, files []*os.File, msg *protocol.InitMessage) (*handover, error) {
	if o.Handover == nil {
		return nil, nil
	}
	t := &handover{Handover: o.Handover, id: o.ID, files: files, msg: msg}
	for _, n := range []int{t.Socket, t.Stream, t.Log, t.Hold, t.Far} {
		if n >= len(files) || n != 0 && n < protocol.FirstFile {
			return nil, errors.New("what is left to the next owner did not come with the order")
		}
	}
	l, err := net.FileListener(files[t.Socket])
	if err != nil {
		return nil, err
	}
	socket, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, errors.New("claims are not made on that socket")
	}
	t.socket = socket
	go func() { _, _ = io.Copy(io.Discard, files[t.Log]) }() // a full pipe would hold the agent up
	return t, nil
}

// outlive says how long the sandbox may live without its owner.
func (k *keeper) outlive(grace time.Duration, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grace, k.until = grace, until
}

// lost takes note of an owner who is gone. The sandbox ends with it unless it may
// stay.
func (k *keeper) lost(owner *net.UnixConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	owner.Close()
	if k.owner != owner {
		return
	}
	k.owner, k.out = nil, nil
	close(k.alone)
	grace := k.grace
	if k.handover == nil {
		grace = 0
	}
	if !k.until.IsZero() {
		grace = min(grace, time.Until(k.until))
	}
	if grace <= 0 {
		k.end()
		return
	}
	// The next owner meets one that runs: only the one before knew that it stood still.
	go func() { _ = k.w.freeze(false) }()
	alone := k.alone
	k.late = time.AfterFunc(grace, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.alone == alone && k.owner == nil {
			k.end()
		}
	})
}

// endTimeout is how long a sandbox without an owner may take to end.
const endTimeout = 5 * time.Second

// end ends the sandbox, which has no owner. One that gVisor hangs in making has no process
// yet that is known to be its: then this one goes, and with it, by the kernel's word, what
// it has started. The caller holds mu.
func (k *keeper) end() {
	k.over = true
	k.w.kill("")
	time.AfterFunc(endTimeout, func() {
		k.cleanup.run()
		os.Exit(1)
	})
}

// claimTimeout is how long a claim waits for the owner before to be gone: a
// process that is killed lets go of one file after the other.
const claimTimeout = 2 * time.Second

// await takes claims for as long as this process lives.
func (k *keeper) await() {
	for {
		conn, err := k.handover.socket.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			if !k.claimed(conn) {
				conn.Close()
			}
		}()
	}
}

// claimed makes who connected the owner, or does not.
func (k *keeper) claimed(conn *net.UnixConn) bool {
	if !sameUser(conn) {
		return false
	}
	_ = conn.SetDeadline(time.Now().Add(claimTimeout))
	var c protocol.Claim
	files, err := protocol.Receive(conn, &c)
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		return false
	}
	refuse := func(why protocol.Refusal) bool {
		_ = conn.SetDeadline(time.Now().Add(claimTimeout))
		_ = protocol.Send(conn, &protocol.Legacy{Version: protocol.Version, Refused: why, PID: os.Getpid()}, nil)
		return false
	}
	if c.ID != k.handover.id {
		return refuse(protocol.Wrong)
	}
	for late := time.After(claimTimeout); ; {
		k.mu.Lock()
		if k.owner == nil || k.over {
			break
		}
		alone := k.alone
		k.mu.Unlock()
		select {
		case <-alone:
		case <-late:
			return refuse(protocol.Owned)
		}
	}
	defer k.mu.Unlock()
	if k.over {
		return refuse(protocol.Over)
	}
	if c.Version != protocol.Version {
		// Its user has another caisson now, and no other owner will come.
		defer k.end()
		return refuse(protocol.Foreign)
	}
	return k.inherit(conn)
}

// inherit hands the sandbox to its next owner. The caller holds mu.
func (k *keeper) inherit(conn *net.UnixConn) bool {
	l := protocol.Legacy{Version: protocol.Version, Self: k.handover.Self, PID: os.Getpid(), Cgroup: k.handover.msg.Cgroup}
	var files []*os.File
	for _, f := range []struct {
		from int
		to   *int
	}{{k.handover.Stream, &l.Stream}, {k.handover.Hold, &l.Hold}, {k.handover.Far, &l.Far}} {
		if f.from != 0 {
			files = append(files, k.handover.files[f.from])
			*f.to = len(files)
		}
	}
	_ = conn.SetDeadline(time.Now().Add(claimTimeout))
	if protocol.Send(conn, &l, files) != nil || conn.SetDeadline(time.Time{}) != nil {
		return false // it is gone again
	}
	if k.late != nil {
		k.late.Stop()
	}
	k.owner, k.out, k.alone = conn, json.NewEncoder(conn), make(chan struct{})
	go k.serve(conn)
	return true
}

// sameUser says whether a process of this user is at the other end, by what the
// kernel knew of it when it connected.
func sameUser(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cerr == nil && err == nil && int(peer.Uid) == os.Geteuid()
}
