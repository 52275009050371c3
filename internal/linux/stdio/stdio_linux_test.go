// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/sandbox"
)

// slow takes one write and holds it until it is let go.
type slow struct {
	bytes.Buffer
	began, free chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	if s.Len() == 0 {
		close(s.began)
		<-s.free
	}
	return s.Buffer.Write(b)
}

// Another process keeps the program's end open and goes on writing: Drain ends all
// the same, and what the program wrote is there, although its reader was slow.
func TestDrainEndsBesideOneWhoStays(t *testing.T) {
	defer func(was time.Duration) { drainLimit = was }(drainLimit)
	drainLimit = time.Millisecond
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	fd, err := unix.FcntlInt(p.Theirs[1].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	stays := os.NewFile(uintptr(fd), "stdout, passed on")
	defer stays.Close()
	out := &slow{began: make(chan struct{}), free: make(chan struct{})}
	p.Copy(&sandbox.Exec{Stdout: out})
	said := strings.Repeat("x", copySize)
	if _, err := stays.WriteString(said); err != nil {
		t.Fatal(err)
	}
	<-out.began
	const last = "the last words"
	if _, err := stays.WriteString(last); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.Drain()
	}()
	close(out.free)
	select {
	case <-drained:
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for who has the other end")
	}
	if got := out.String(); got != said+last {
		t.Errorf("%d bytes of %d came out", len(got), len(said+last))
	}
}
