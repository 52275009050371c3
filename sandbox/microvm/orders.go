// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/caisson-run/caisson/guest/boot"
	"github.com/caisson-run/caisson/sandbox"
)

// orders is the way to a machine's first process (package guest/boot). Code inside may
// have become the machine's root: what is answered is bounded, and believed in nothing
// that protects the host.
type orders struct {
	conn net.Conn
	turn chan struct{} // one order at a time
	last uint64        // the number of the last order; of who has the turn
	line []byte        // what was read of an answer; of who has the turn
}

const (
	// orderTimeout is long: an emulated processor may be one of many on a busy host.
	orderTimeout = 2 * time.Minute
	maxOldDone   = 64 // answers to orders that were given up
	// maxDone is how long an answer may be, in bytes: a piece of a layer in base64.
	maxDone = 2*boot.MaxPiece + 4<<10
)

var errOrderTimeout = errors.New("the guest did not answer in time")

// maxShown is how much of what a guest or a monitor complains of goes into a message, in
// bytes: it may be in hostile hands.
const maxShown = 300

// said shows such a complaint.
func said(s string) string { return sandbox.Quoted(sandbox.Clip(s, maxShown)) }

// newOrders speaks over conn, which the caller closes. The numbers of orders are new in
// each monitor: a machine that was written down may still answer an older one.
func newOrders(conn net.Conn) *orders {
	return &orders{conn: conn, turn: make(chan struct{}, 1), last: rand.Uint64() >> 1}
}

// give gives an order and waits until it was carried out. When ctx ends first it may still
// be carried out later.
func (o *orders) give(ctx context.Context, order boot.Order) error {
	_, err := o.ask(ctx, order)
	return err
}

// ask is give, for what is answered.
func (o *orders) ask(ctx context.Context, order boot.Order) (*boot.Done, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, orderTimeout, errOrderTimeout)
	defer cancel()
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", order.Do, context.Cause(ctx))
	}
	if err := o.conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("%s: %w", order.Do, err)
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = o.conn.SetDeadline(time.Unix(1, 0))
	})
	done, err := o.exchange(order)
	if !stop() {
		<-expired // not in the next order's time
		if err != nil {
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", order.Do, err)
	}
	return done, nil
}

func (o *orders) exchange(order boot.Order) (*boot.Done, error) {
	o.last++
	order.ID = o.last
	b, err := json.Marshal(&order)
	if err != nil {
		return nil, err
	}
	// The empty line ends an order that was given up half written.
	if _, err := o.conn.Write(append(append([]byte{'\n'}, b...), '\n')); err != nil {
		return nil, err
	}
	for range maxOldDone {
		line, err := o.answer()
		if err != nil {
			return nil, err
		}
		var d boot.Done
		switch err := json.Unmarshal(line, &d); {
		case err != nil:
			return nil, errors.New("the guest answers nonsense")
		case d.ID != order.ID: // of one that was given up
		case d.Error != "":
			return nil, errors.New("the guest says: " + said(d.Error))
		default:
			return &d, nil
		}
	}
	return nil, errors.New("the guest answers what was not asked")
}

// answer is the next line; what was read of it stays when it is given up.
func (o *orders) answer() ([]byte, error) {
	buf := make([]byte, 64<<10)
	for {
		if line, rest, found := bytes.Cut(o.line, []byte("\n")); found {
			o.line = bytes.Clone(rest)
			return line, nil
		}
		if len(o.line) > maxDone {
			return nil, errors.New("the guest's answer is too long")
		}
		n, err := o.conn.Read(buf)
		if o.line = append(o.line, buf[:n]...); err != nil {
			return nil, err
		}
	}
}
