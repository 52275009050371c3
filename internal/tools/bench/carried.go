// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// firstByteArg makes this program one that runs echo for each line that it reads, each
// time as its first sandbox, and says how long it was until the first byte.
const firstByteArg = "first-byte"

// toFirstByte is what it says.
type toFirstByte struct {
	Wall  time.Duration
	Error string `json:",omitempty"`
}

// carriedFirstByte is firstByte in this program as caisson itself is built: gVisor's
// halves are another program, which it carries. One that only imports caisson executes
// itself for them, with all that it is linked with.
func (s *stage) carriedFirstByte(ctx context.Context) row {
	u, dir := s.users[0], s.path("carrying")
	path, err := filepath.Abs(s.o.carrying)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	var program *embedder
	if err == nil {
		program, err = s.embed(ctx, u, path, firstByteArg, dir)
	}
	if err != nil {
		return row{notes: []string{err.Error()}}
	}
	p := interleave(ctx, s.o.pairs,
		func(context.Context) (took, error) {
			var t toFirstByte
			if err := program.ask(&t); err != nil {
				return took{}, err
			}
			if t.Error != "" {
				return took{}, errors.New(t.Error)
			}
			return took{wall: t.Wall}, nil
		},
		func(ctx context.Context) (took, error) { return s.runscFirstByte(ctx, u) })
	r := p.row(firstByteGoal)
	r.who = u.name
	if err := program.end(); err != nil {
		r.notes = append(r.notes, err.Error())
	}
	return r
}

// firstBytes is that program, with its files in dir.
func firstBytes(ctx context.Context, dir string, in io.Reader, out io.Writer) error {
	s := &stage{dir: dir}
	root, err := image.Host(ctx, image.HostOptions{Cache: s.path("images"), Targets: targets()})
	if err != nil {
		return err
	}
	defer root.Close()
	to, n := json.NewEncoder(out), 0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n++
		t, err := s.driverFirstByte(ctx, gvisor.New(gvisor.Options{}), root, fmt.Sprintf("sbx_bench%011d", n))
		said := toFirstByte{Wall: t.wall}
		if err != nil {
			said.Error = err.Error()
		}
		if err := to.Encode(said); err != nil {
			return err
		}
	}
	return nil
}
