// SPDX-License-Identifier: Apache-2.0

//go:build linux

package boot

import (
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/guest/wire"
)

// caller is a connection that a machine accepts.
type caller struct {
	file *os.File
	cid  uint32
}

// The channel stays one stream over connections that end; of who is not the host nothing
// comes in.
func TestChannelOverConnections(t *testing.T) {
	port, inner, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	accepted, over := make(chan caller), make(chan struct{})
	go func() {
		defer close(over)
		carry(wire.NewCarrier(inner), func() (*os.File, uint32, error) {
			c, ok := <-accepted
			if !ok {
				return nil, 0, syscall.EBADF
			}
			return c.file, c.cid, nil
		})
	}()
	connect := func(cid uint32) *os.File {
		host, guest, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		accepted <- caller{guest, cid}
		return host
	}
	buf := make([]byte, 5)
	for n, cid := range []uint32{hostCID, 3, hostCID, 1, hostCID} {
		c := connect(cid)
		if cid != hostCID {
			if n, err := c.Read(buf); n != 0 || err != io.EOF {
				t.Errorf("a caller with CID %d reads %d bytes, %v", cid, n, err)
			}
			c.Close()
			continue
		}
		if _, err := c.WriteString("hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(port, buf); err != nil || string(buf) != "hello" {
			t.Fatalf("connection %d: inside comes %q, %v", n, buf, err)
		}
		if _, err := port.WriteString("there"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "there" {
			t.Fatalf("connection %d: outside comes %q, %v", n, buf, err)
		}
		c.Close()
	}
	close(accepted)
	<-over
}

func TestPlaceOfDisk(t *testing.T) {
	line := []string{"quiet", "caisson.disks=root,copies", "panic=-1"}
	for serial, want := range map[string]string{"root": "/dev/vda", "copies": "/dev/vdb", "other": "", "": ""} {
		if got := placeOf(serial, line); got != want {
			t.Errorf("%q: %q, want %q", serial, got, want)
		}
	}
	if got := placeOf("root", []string{"quiet"}); got != "" {
		t.Errorf("without a word of it: %q", got)
	}
}
