// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Main is a probe; args are what follows Word. It returns an exit code.
func Main(args []string) int {
	if len(args) == 0 {
		return 125
	}
	n := func(i int) int64 {
		v, _ := strconv.ParseInt(word(args, i), 10, 64)
		return v
	}
	switch args[0] {
	case ModeLive:
		return live(word(args, 1))
	case modeChild:
		return child(word(args, 1), word(args, 2))
	case ModeVictim:
		return victim()
	case ModeSleep:
		say(Try{Case: CaseReady})
		for {
			_ = unix.Pause()
		}
	case ModeProcesses:
		return processes(n(1))
	case ModeMemory:
		return memory(word(args, 1), n(2))
	case ModeDisk:
		return disk(n(1), n(2), args[3:max(3, len(args)-1)])
	case ModeOutput:
		return output(n(1))
	case ModeFiles:
		return files(n(1))
	case ModeBusy:
		return busy(n(1))
	case ModeWear:
		return wear(word(args, 1))
	case ModeNoise:
		return noise(n(1))
	case ModeQuiet:
		return quiet()
	case ModePlaced:
		return placed(word(args, 1))
	case ModeQuota:
		return quota(n(1))
	case ModeStubborn, ModeStopped:
		return stubborn(args[0] == ModeStopped)
	case ModeDaemon:
		return daemon(word(args, 1))
	case modeSwap:
		return swap(word(args, 1))
	case ModeNetwork:
		return network(word(args, 1))
	case ModeListen:
		return listen(word(args, 1), word(args, 2))
	case ModeHold:
		return hold(word(args, 1), word(args, 2))
	case ModeFlood:
		return flood(word(args, 1), word(args, 2), word(args, 3))
	case ModeInternet:
		return internet(word(args, 1))
	case ModeAgent:
		return agent()
	case ModeLinks:
		return links(word(args, 1))
	}
	return 125
}

func word(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

var said sync.Mutex

// say writes one line. Several processes share the stream; a line is one write.
func say(t Try) {
	said.Lock()
	defer said.Unlock()
	line, _ := json.Marshal(t)
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// prober makes the attempts of one process.
type prober struct {
	Config
	held []int // descriptors that stay open until the host has looked
	id   string
	all  []*prober // one for each case
}

// try says what came of one attempt.
func (p *prober) try(what string, err error) {
	t := Try{Case: p.id, What: what, Got: err == nil}
	if err != nil {
		t.Error = err.Error()
	}
	say(t)
}

// found says that an attempt gave data, and which canaries are in it.
func (p *prober) found(what string, data []byte) {
	say(Try{Case: p.id, What: what, Found: canaries(data)})
}

var canary = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`caisson-canary-[A-Z0-9]+-[0-9a-f]{32}`) })

// canaries are all that a probe tells of what it has read.
func canaries(data []byte) string {
	var all []string
	for _, c := range canary().FindAll(data, 64) {
		if !slices.Contains(all, string(c)) {
			all = append(all, string(c))
		}
	}
	return strings.Join(all, " ")
}

// open tries to open a file and holds it.
func (p *prober) open(path string, flags int) int {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	p.try(fmt.Sprintf("open %s (%s)", path, mode(flags)), err)
	if err != nil {
		return -1
	}
	p.held = append(p.held, fd)
	return fd
}

func mode(flags int) string {
	switch {
	case flags&unix.O_PATH != 0:
		return "O_PATH"
	case flags&unix.O_ACCMODE == unix.O_RDONLY:
		return "read"
	case flags&unix.O_ACCMODE == unix.O_WRONLY:
		return "write"
	}
	return "read and write"
}

// read tries to read a file that may hold a canary.
func (p *prober) read(path string) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		p.try("read "+path, err)
		return
	}
	p.held = append(p.held, fd)
	p.found("read "+path, contents(fd))
}

// contents are the first 256 KiB.
func contents(fd int) []byte {
	data := make([]byte, 256<<10)
	n := 0
	for n < len(data) {
		m, err := unix.Pread(fd, data[n:], int64(n))
		if m <= 0 || err != nil {
			break
		}
		n += m
	}
	return data[:n]
}

// write tries to change a canary of the host.
func (p *prober) write(path string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Pwrite(fd, []byte(p.Nonce), 0)
		unix.Close(fd)
	}
	p.try("write "+path, err)
}

func (p *prober) hold(what string, fd uintptr, errno unix.Errno) {
	if errno != 0 {
		p.try(what, errno)
		return
	}
	p.held = append(p.held, int(fd))
	p.try(what, nil)
}
