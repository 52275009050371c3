// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// TestLifetime: a router that ends leaves a device behind that carries nothing,
// and the namespace takes that along. Another namespace has one end of a cable
// whose other end is in there: when the cable is gone, all of it is.
func TestLifetime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which makes namespaces of the network here; an ordinary user's are in the tests of the process level")
	}
	timeout, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	outside := make(chan int)     // the thread whose namespace has the cable's other end
	inside := make(chan error, 1) // the namespace was made, and everybody has left it
	result := make(chan error, 1) // what outside saw
	go onThreadOf(func() error {
		outside <- unix.Gettid()
		if err := <-inside; err != nil {
			return err
		}
		for {
			if _, err := net.InterfaceByName("there"); err != nil {
				return nil
			}
			select {
			case <-timeout.Done():
				return errors.New("the cable is still there: somebody holds the namespace")
			case <-time.After(5 * time.Millisecond):
			}
		}
	}, result)
	other := <-outside
	go onThreadOf(func() error {
		if out, err := exec.Command("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", fmt.Sprint(other)).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		device, err := Config{Address: [4]byte{198, 18, 0, 2}, Gateway: [4]byte{198, 18, 0, 1}, MTU: 1500}.Make()
		if err != nil {
			return err
		}
		if err := send(); err != nil {
			return err
		}
		packet := []unix.PollFd{{Fd: int32(device.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(packet, 30_000); err != nil || packet[0].Revents != unix.POLLIN {
			return fmt.Errorf("nothing came for its router: %+v, %w", packet, err)
		}
		device.Close()
		if err := send(); err != nil {
			return fmt.Errorf("without a router: %w", err) // there is no route when there is no device
		}
		return nil
	}, inside)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// onThreadOf runs f on a thread in a network namespace of its own, which ends
// with it.
func onThreadOf(f func() error, result chan<- error) {
	result <- threads.Ending(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// send sends a packet. One that is dropped is no error of the sender's.
func send() error {
	c, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); !errors.Is(err, unix.ENOBUFS) {
		return err
	}
	return nil
}
