// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// keeper makes one sandbox, serves its owner and cleans up.
type keeper struct {
	w        *instance
	cleanup  *cleanup
	handover *handover // nil: the sandbox dies with its owner

	saving sync.Mutex // held until the caller that asked for a snapshot has the answer

	mu    sync.Mutex
	owner *net.UnixConn // nil while there is none
	out   *json.Encoder // to owner
	over  bool          // the sandbox has ended, or is being ended for want of an owner
	grace time.Duration // how long it may live without an owner; 0 is not at all
	until time.Time     // and at most until then, when not zero
	late  *time.Timer   // ends it, while there is no owner
	alone chan struct{} // closed while there is no owner
}

func newKeeper(conn *net.UnixConn) *keeper {
	return &keeper{owner: conn, out: json.NewEncoder(conn), alone: make(chan struct{})}
}

// send tells the owner. One that is gone is noticed by reading.
func (k *keeper) send(e protocol.Event) { k.answerTo(nil, e) }

// answerTo tells the owner, if it still is the one who asked; nil is any.
func (k *keeper) answerTo(asked *net.UnixConn, e protocol.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owner != nil && (asked == nil || asked == k.owner) {
		_ = k.out.Encode(e)
	}
}

// last is the last event, which the owner takes away what is left after; false
// when there is no owner.
func (k *keeper) last(e protocol.Event) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	return k.owner != nil && k.out.Encode(e) == nil
}

// serve carries out an owner's commands until it hangs up.
func (k *keeper) serve(owner *net.UnixConn) {
	asked := make(chan protocol.Command, 16)
	defer close(asked)
	go k.answer(owner, asked)
	in := protocol.NewCommands(owner)
	defer in.Close()
	for {
		c, file, err := in.Next()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				k.lost(owner)
			}
			return
		}
		switch c.Kind {
		case protocol.Kill:
			k.w.kill("")
			k.outlive(0, time.Time{}) // it is no owner's any more
			continue
		case protocol.Outlive:
			k.outlive(c.Grace, c.Until)
			continue
		case protocol.Stop:
			go k.w.stop()
			continue
		case protocol.ReadLayer:
			go k.readLayer(owner, c.Target, file)
			continue
		}
		select {
		case asked <- c:
		default: // sixteen are waiting for a kernel that does not answer
		}
	}
}

// answer carries out the commands that need the kernel inside, which may take
// its time or, when something is wrong with it, never answer: that must not
// keep it from being killed.
func (k *keeper) answer(owner *net.UnixConn, asked <-chan protocol.Command) {
	for c := range asked {
		switch c.Kind {
		case protocol.Measure:
			n := k.w.counters()
			k.answerTo(owner, protocol.Event{Kind: protocol.Usage, Counters: &n})
		case protocol.Save:
			k.saving.Lock()
			e := protocol.Event{Kind: protocol.Saved}
			if err := k.w.save(c); err != nil {
				e.Fail(err)
			}
			k.answerTo(owner, e)
			k.saving.Unlock()
		case protocol.Freeze, protocol.Thaw:
			e := protocol.Event{Kind: protocol.Stood}
			if err := k.w.freeze(c.Kind == protocol.Freeze); err != nil {
				e.Fail(err)
			}
			k.answerTo(owner, e)
		case protocol.Signal:
			k.w.signal(syscall.Signal(c.Signal))
		}
	}
}

// readLayer has the kernel write a layer, for as long as the owner takes to read it.
func (k *keeper) readLayer(owner *net.UnixConn, target string, to *os.File) {
	e := protocol.Event{Kind: protocol.Read}
	if err := k.w.readLayer(target, to); err != nil {
		e.NoLayer = errors.Is(err, errNoLayer)
		e.Fail(err)
	}
	k.answerTo(owner, e)
}

// tell tells the owner that the first process runs, or that none does any more.
func (k *keeper) tell(kind protocol.EventKind) { k.send(protocol.Event{Kind: kind}) }
