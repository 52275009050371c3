// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	api "github.com/caisson-run/caisson/client"
)

// daemon is a caisson serve.
type daemon struct {
	*api.Client
	cmd    *exec.Cmd
	stderr bytes.Buffer
	pool   int
	state  string
	key    string
	url    string
}

// serving is how a daemon is started.
type serving struct {
	pool   int
	policy string // a file; empty is none
}

func (s *stage) daemon(ctx context.Context, u user, how serving) (*daemon, error) {
	key := make([]byte, 20)
	rand.Read(key)
	d := &daemon{pool: how.pool, state: filepath.Join(filepath.Dir(u.state), "served"), key: "e2b_" + hex.EncodeToString(key)} // the form that E2B's client takes
	args := []string{"serve", "--listen", "127.0.0.1:0", "--pool", strconv.Itoa(how.pool), "--state", d.state}
	if how.policy != "" {
		args = append(args, "--policy", how.policy)
	}
	d.cmd = s.caisson(ctx, u, args...)
	d.cmd.Env = append(d.cmd.Env, "CAISSON_API_KEY="+d.key)
	d.cmd.Stderr = &d.stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for d.url == "" && lines.Scan() {
		_, d.url, _ = strings.Cut(lines.Text(), " serves sandboxes at ")
	}
	go io.Copy(io.Discard, out)
	if d.Client, err = api.New(api.Options{URL: d.url, Key: d.key}); err != nil || d.url == "" {
		return nil, errors.Join(err, d.stop())
	}
	return d, d.settle(ctx)
}

// settle waits until the pool is full, by the time that nothing takes.
func (d *daemon) settle(ctx context.Context) error {
	for range 3 { // the first of all makes the root tree and unpacks the engine
		b, err := d.Create(ctx, api.Create{Limits: &api.Limits{Processes: 500}})
		if err == nil {
			err = d.Kill(ctx, b.ID)
		}
		if err != nil {
			return errors.Join(err, d.stop())
		}
	}
	return d.rest(ctx)
}

// rest lets the pool be filled again: making one takes some 100 ms.
func (d *daemon) rest(ctx context.Context) error {
	if d.pool == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond):
		return nil
	}
}

func (d *daemon) end() error {
	d.Close()
	return d.stop()
}

func (d *daemon) stop() error {
	d.cmd.Process.Signal(syscall.SIGTERM)
	if err := d.cmd.Wait(); err != nil {
		return failure(d.cmd, err, d.stderr.String())
	}
	return nil
}
