// SPDX-License-Identifier: Apache-2.0

package microvm

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// consoleMoment is how long settle waits.
const consoleMoment = 200 * time.Millisecond

// outputMoment is more than a pipe takes.
const outputMoment = 5 * time.Millisecond

// settle waits until what lies in the console's socket was read: the agent tells there of
// the memory limit before it tells of the program that it has ended.
func (c *console) settle(ctx context.Context) {
	if c.serial == nil { // a monitor's own output, of which nothing tells how much there is
		select {
		case <-c.oom:
		case <-time.After(outputMoment):
		}
		return
	}
	raw, err := c.serial.SyscallConn()
	if err != nil {
		return
	}
	for until := time.Now().Add(consoleMoment); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		left := 0
		if raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) != nil || err != nil || left == 0 {
			return
		}
	}
}
