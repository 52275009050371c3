// SPDX-License-Identifier: Apache-2.0

//go:build linux

package wire

import (
	"sync"
	"time"
)

// swappable is a stream whose other end can be replaced below its user.
type swappable struct {
	mu sync.Mutex
	s  Stream
}

func (w *swappable) set(s Stream) {
	w.mu.Lock()
	old := w.s
	w.s = s
	w.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

func (w *swappable) get() Stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s
}

func (w *swappable) Read(b []byte) (int, error)         { return w.get().Read(b) }
func (w *swappable) Write(b []byte) (int, error)        { return w.get().Write(b) }
func (w *swappable) SetReadDeadline(t time.Time) error  { return w.get().SetReadDeadline(t) }
func (w *swappable) SetWriteDeadline(t time.Time) error { return w.get().SetWriteDeadline(t) }
func (w *swappable) Close() error                       { return w.get().Close() }
