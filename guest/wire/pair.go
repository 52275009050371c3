// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"os"
	"time"
)

// Pair joins two pipes into one stream. Both files must be in non-blocking
// mode when they are opened, or they take no deadlines.
func Pair(r, w *os.File) Stream { return &pair{r: r, w: w} }

type pair struct{ r, w *os.File }

func (p *pair) Read(b []byte) (int, error)         { return p.r.Read(b) }
func (p *pair) Write(b []byte) (int, error)        { return p.w.Write(b) }
func (p *pair) SetReadDeadline(t time.Time) error  { return p.r.SetReadDeadline(t) }
func (p *pair) SetWriteDeadline(t time.Time) error { return p.w.SetWriteDeadline(t) }
func (p *pair) Close() error                       { return errors.Join(p.r.Close(), p.w.Close()) }
