// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/binary"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// A connection is refused by a decision, and never by accident. The stack resets
// the beginning of one, too, that it takes for a part of another from the same
// port, which is just being closed: nothing was decided about it then. Such a
// reset does not reach the sandbox, whose kernel begins again after a second, as
// it does when a packet is lost.

// way is which connection a packet belongs to, as the sandbox numbers it.
type way struct {
	host        [4]byte
	port, local uint16
}

// resets are the beginnings that are being refused.
type resets struct {
	mu    sync.Mutex
	meant map[way]int
}

// refuse answers a beginning with a reset, or takes it back without one.
func (l *link) refuse(req *tcp.ForwarderRequest) {
	id := req.ID()
	w := way{id.LocalAddress.As4(), id.LocalPort, id.RemotePort}
	l.resets.change(w, 1)
	defer l.resets.change(w, -1)
	req.Complete(true) // writes it before it returns
}

func (r *resets) change(w way, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meant == nil {
		r.meant = map[way]int{}
	}
	if r.meant[w] += by; r.meant[w] == 0 {
		delete(r.meant, w)
	}
}

// accident says whether a packet for the sandbox is a reset of a beginning (RFC
// 9293, 3.5.2: its number is 0) that was not meant.
func (r *resets) accident(p []byte) bool {
	if len(p) < headerLength+header.TCPMinimumSize || p[9] != protocolTCP {
		return false
	}
	t := header.TCP(p[headerLength:])
	if t.Flags() != header.TCPFlagRst|header.TCPFlagAck || t.SequenceNumber() != 0 {
		return false
	}
	w := way{[4]byte(p[12:16]), binary.BigEndian.Uint16(t), binary.BigEndian.Uint16(t[2:])}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.meant[w] == 0
}
