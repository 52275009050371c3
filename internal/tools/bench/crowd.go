// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
)

// crowdArg makes this program the one that embeds caisson.
const crowdArg = "embed-caisson"

// crowdOf is what one round of it came to.
type crowdOf struct {
	Wall, CPU time.Duration
	Failed    int
	First     string // the first failure
}

// embedding is the row of a program that embeds caisson and is asked for many
// sandboxes at once, as a server is: one process, one record, one policy, all
// of them open before. A stock runsc cannot be embedded; it is started as often
// as in the row of the command line.
func (s *stage) embedding(ctx context.Context) (r row) {
	u := s.users[0]
	program, err := s.embed(ctx, u, "/proc/self/exe", crowdArg, u.state)
	if err != nil {
		return row{notes: []string{err.Error()}}
	}
	var failed [2]int
	p := interleave(ctx, s.o.rounds,
		func(ctx context.Context) (took, error) {
			t, n, err := program.round()
			failed[0] += n
			return t, err
		},
		func(ctx context.Context) (took, error) {
			t, n, err := together(ctx, func(ctx context.Context) *exec.Cmd { return s.runscDo(ctx, u, "/bin/true") })
			failed[1] += n
			return t, err
		})
	r = p.row("≥ 1.50, no failure")
	r.who = u.name
	r.notes = append(r.notes, fmt.Sprintf("one program that calls caisson.Run; %d of its runs failed and %d of runsc's; ratio of throughput", failed[0], failed[1]))
	p.throughput(&r)
	if err := program.end(); err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

// embedder is a running program that embeds caisson.
type embedder struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
}

// embed starts this program, as it was built at path, on as many processors as the others
// get; what and where it is told.
func (s *stage) embed(ctx context.Context, u user, path, what, where string) (*embedder, error) {
	e := &embedder{cmd: s.command(ctx, u, "caisson", []string{what, where})}
	e.cmd.Path = path
	e.cmd.Stderr = &e.stderr
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	e.out = json.NewDecoder(out)
	return e, startOn(onCores, e.cmd)
}

// ask has the program do once what it was told, and reads what it says of it.
func (e *embedder) ask(answer any) error {
	_, err := io.WriteString(e.in, "\n")
	if err == nil {
		err = e.out.Decode(answer)
	}
	if err != nil {
		return errors.Join(err, e.end())
	}
	return nil
}

// round asks for a crowd and waits until the last of it has ended.
func (e *embedder) round() (took, int, error) {
	var c crowdOf
	if err := e.ask(&c); err != nil {
		return took{}, atOnce, err
	}
	if c.Failed > 0 {
		return took{}, c.Failed, errors.New(c.First)
	}
	return took{c.Wall, c.CPU}, 0, nil
}

func (e *embedder) end() error {
	e.in.Close()
	if err := e.cmd.Wait(); err != nil {
		return failure(e.cmd, err, e.stderr.String())
	}
	return nil
}

// crowd is the program: for each line that it reads it makes a crowd.
func crowd(ctx context.Context, state string, in io.Reader, out io.Writer) error {
	c, err := caisson.Open(ctx, caisson.Options{State: state})
	if err != nil {
		return err
	}
	to := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := to.Encode(crowdRound(ctx, c)); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

func crowdRound(ctx context.Context, c *caisson.Caisson) (sum crowdOf) {
	var mu sync.Mutex
	var all sync.WaitGroup
	before, began := ownTime(), time.Now()
	for range atOnce {
		all.Go(func() {
			res, err := c.Run(ctx, caisson.Request{Command: []string{"/bin/true"}})
			if err == nil && (res.ExitCode == nil || *res.ExitCode != 0) {
				err = fmt.Errorf("it ended with %s: %s", res.Status, res.Reason)
			}
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if sum.Failed++; sum.First == "" {
				sum.First = err.Error()
			}
		})
	}
	all.Wait()
	sum.Wall, sum.CPU = time.Since(began), ownTime()-before
	return sum
}

// ownTime is the processor time of this process and all that it waited for.
func ownTime() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// embeds carries out serverArg, crowdArg or firstByteArg, if that is what this process was
// started for.
func embeds(ctx context.Context, args []string) (done bool, err error) {
	if len(args) == 2 && args[1] == serverArg {
		return true, serveEcho(ctx)
	}
	if len(args) != 3 {
		return false, nil
	}
	switch args[1] {
	case crowdArg:
		return true, crowd(ctx, args[2], os.Stdin, os.Stdout)
	case firstByteArg:
		return true, firstBytes(ctx, args[2], os.Stdin, os.Stdout)
	case machineArg:
		return true, bootMachines(ctx, args[2], os.Stdin, os.Stdout)
	}
	return false, nil
}
