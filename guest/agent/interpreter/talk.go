// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/caisson-run/caisson/interpreter"
)

// talk is how the agent speaks with a kernel.
type talk interface {
	// start has the kernel run a cell.
	start(c *command) error
	// next waits for what the kernel says next. It is called from one goroutine.
	next() (*message, error)
	// more says whether next would return at once.
	more() bool
	// begun says whether a cell can be interrupted yet.
	begun(id string) bool
	// interrupt asks for the end of a cell, and says whether a signal may follow.
	interrupt(id string) bool
	// interrupted is called when the signal was sent.
	interrupted(id string)
	// reseed gives the kernel's generators of random numbers another beginning.
	reseed(seed string) error
	// close ends next.
	close()
}

// command is a cell for a kernel.
type command struct {
	ID       string            `json:"id"`
	Code     string            `json:"code"`
	Language string            `json:"language,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Dir      string            `json:"dir,omitempty"`
}

// lineTalk speaks in lines of JSON over two pipes.
type lineTalk struct {
	in    *os.File // to the kernel
	mu    sync.Mutex
	out   *os.File // from it
	lines *bufio.Reader
	heard *os.File // to it: a byte for each line that is heardYet
}

// heardYet is the line with which a kernel asks whether what it said before was taken.
const heardYet = `{"heard":true}`

// newLineTalk makes the pipes; theirs are the kernel's fd 3, 4 and 5.
func newLineTalk() (t *lineTalk, theirs []*os.File, err error) {
	in, theirIn, err := ends(false)
	if err != nil {
		return nil, nil, err
	}
	out, theirOut, err := ends(true)
	if err != nil {
		in.Close()
		theirIn.Close()
		return nil, nil, err
	}
	heard, theirHeard, err := ends(false)
	if err != nil {
		for _, f := range []*os.File{in, theirIn, out, theirOut} {
			f.Close()
		}
		return nil, nil, err
	}
	t = &lineTalk{in: in, out: out, lines: bufio.NewReaderSize(out, 64<<10), heard: heard}
	return t, []*os.File{theirIn, theirOut, theirHeard}, nil
}

func (t *lineTalk) start(c *command) error { return t.send(c) }

func (t *lineTalk) interrupt(id string) bool {
	// A kernel that reads nothing has its signal, and must not hold who interrupts it.
	go t.send(struct {
		Interrupt string `json:"interrupt"`
	}{id})
	return true
}

func (t *lineTalk) begun(string) bool  { return true }
func (t *lineTalk) interrupted(string) {}

func (t *lineTalk) reseed(seed string) error {
	return t.send(struct {
		Reseed string `json:"reseed"`
	}{seed})
}

func (t *lineTalk) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err = t.in.Write(append(b, '\n'))
	return err
}

func (t *lineTalk) next() (*message, error) {
	for {
		line, err := readLine(t.lines, interpreter.MaxLine)
		if err != nil {
			return nil, err
		}
		if string(line) != heardYet {
			return parseLine(line)
		}
		if err := t.answer(); err != nil {
			return nil, err
		}
	}
}

// answer says that it was heard. A kernel that asks and reads no answer is not waited for.
func (t *lineTalk) answer() error {
	raw, err := t.heard.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), []byte{1}) })
}

// more is not said before a kernel asks whether it was heard: that is no event, and what was
// said would wait for one.
func (t *lineTalk) more() bool {
	next, _ := t.lines.Peek(min(t.lines.Buffered(), len(heardYet)))
	return len(next) > 0 && !strings.HasPrefix(heardYet, string(next))
}

func (t *lineTalk) close() {
	t.in.Close()
	t.out.Close()
	t.heard.Close()
}
