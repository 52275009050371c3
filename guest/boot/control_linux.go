// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// maxOrder is how long an order may be, in bytes.
const maxOrder = 16 << 10

// obey does what the host orders, until the port fails. Nothing of the sandbox reaches the
// port.
func (c *Config) obey(port *os.File) {
	r := &reader{layers: c.layers}
	defer r.end()
	var line []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := syscall.Read(int(port.Fd()), buf)
		switch {
		case err != nil && err != syscall.EINTR && err != syscall.EAGAIN:
			fmt.Fprintln(os.Stderr, "caisson: the control port:", err)
			return
		case n <= 0: // the host is not there: the machine is between two monitors
			time.Sleep(devicePause)
			continue
		}
		line = append(line, buf[:n]...)
		for {
			order, rest, found := bytes.Cut(line, []byte("\n"))
			if !found {
				break
			}
			line = append([]byte(nil), rest...)
			if len(order) == 0 { // what was given up by the host ends so
				continue
			}
			done := c.carryOut(order, r)
			b, err := json.Marshal(done)
			if err == nil {
				err = writeAll(port, append(b, '\n'))
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "caisson: the control port:", err)
				return
			}
		}
		if len(line) > maxOrder {
			line = nil
		}
	}
}

// writeAll writes to a port, of which the kernel takes 32 KiB at once.
func writeAll(port *os.File, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(int(port.Fd()), b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN, err == nil && n == 0: // the host is not there
			time.Sleep(devicePause)
		case err != nil:
			return err
		default:
			b = b[n:]
		}
	}
	return nil
}

func (c *Config) carryOut(line []byte, r *reader) Done {
	var o Order
	var done Done
	err := json.Unmarshal(line, &o)
	if err == nil {
		switch o.Do {
		case Freeze:
			err = freeze(o.Within)
		case Flush:
			err = flush(o.Within)
		case Resume:
			if err = o.resume(); err == nil && c.channel != nil {
				c.channel.Meet()
			}
		case Changes:
			done.Piece, err = r.next(o.Target)
		case Hold:
			done.Sent, err = c.hold()
		case Leave:
			err = c.leave(o.Sent)
		default:
			err = fmt.Errorf("there is no order %q", o.Do)
		}
	}
	if err != nil {
		return Done{ID: o.ID, Error: err.Error()}
	}
	done.ID = o.ID
	return done
}

// partWait is how long what is on the channel may take to come to an end.
const partWait = 30 * time.Second

var errPort = errors.New("the channel is a port, which is not parted from")

// hold has nothing more be sent to the host, and returns how much was.
func (c *Config) hold() (int64, error) {
	if c.channel == nil {
		return 0, errPort
	}
	ctx, cancel := context.WithTimeout(context.Background(), partWait)
	defer cancel()
	c.channel.Part()
	return c.channel.Sent(ctx)
}

// leave takes what the host has sent, and hangs up.
func (c *Config) leave(sent int64) error {
	if c.channel == nil {
		return errPort
	}
	ctx, cancel := context.WithTimeout(context.Background(), partWait)
	defer cancel()
	c.channel.Part()
	err := c.channel.Await(ctx, sent)
	c.channel.Cut()
	return err
}

// freeze has every process of the sandbox stand still. After an error those do that can:
// one may wait for another that stands still, as for a file system that is a process of the
// sandbox (FUSE).
func freeze(within time.Duration) error {
	if err := setFrozen("1"); err != nil {
		return err
	}
	for until := time.Now().Add(within); ; time.Sleep(devicePause) {
		b, err := os.ReadFile(filepath.Join(groupDir, "cgroup.events"))
		if err != nil || strings.Contains("\n"+string(b), "\nfrozen 1\n") {
			return err
		}
		if time.Now().After(until) {
			return errors.New("a process of the sandbox does not stand still")
		}
	}
}

// flushing is one that has not come to an end; there is no other then.
var flushing = make(chan struct{}, 1)

// flush writes out what is to be written: sync(2), which waits for every file system.
func flush(within time.Duration) error {
	expired := time.After(within)
	select {
	case flushing <- struct{}{}:
	case <-expired:
		return errors.New("a file system does not write what it has")
	}
	done := make(chan struct{})
	go func() {
		syscall.Sync()
		<-flushing
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-expired:
		return errors.New("a file system does not write what it has")
	}
}

func setFrozen(to string) error {
	return os.WriteFile(filepath.Join(groupDir, "cgroup.freeze"), []byte(to), 0)
}

// resume tells the kernel what has changed while the machine stood still, and then lets
// the sandbox go on. After an error it stands still.
func (o *Order) resume() error {
	if o.Time != 0 {
		tv := syscall.NsecToTimeval(o.Time)
		if err := syscall.Settimeofday(&tv); err != nil {
			return fmt.Errorf("set the clock: %w", err)
		}
	}
	if len(o.Entropy) > 0 {
		if err := reseed(o.Entropy); err != nil {
			return fmt.Errorf("random numbers: %w", err)
		}
	}
	if err := o.setNames(); err != nil {
		return fmt.Errorf("set the name: %w", err)
	}
	if o.Moved {
		if err := askPeers(); err != nil {
			fmt.Fprintln(os.Stderr, "caisson: connections of before stay:", err)
		}
	}
	return setFrozen("0")
}

// Requests of random(4).
const (
	addEntropy = 0x40085203
	reseedPool = 0x5207
)

// reseed has the kernel draw other numbers than a copy of it: from here on, and not when
// its pool is next looked at.
func reseed(b []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var pool struct { // struct rand_pool_info of linux/random.h
		bits, size int32
		bytes      [EntropySize]byte
	}
	n := copy(pool.bytes[:], b)
	pool.bits, pool.size = int32(8*n), int32(n)
	for _, c := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{{addEntropy, unsafe.Pointer(&pool)}, {reseedPool, nil}} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), c.request, uintptr(c.arg)); e != 0 {
			return e
		}
	}
	return nil
}
