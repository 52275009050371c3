// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// sampleEvery is how often a process's memory is read.
const sampleEvery = 25 * time.Millisecond

// flooded watches caisson's memory while a program inside prints. The program
// is quiet first, which gives the idle figure of the very same process.
func (s *stage) flooded(ctx context.Context, flags ...string) row {
	u := s.users[0]
	script := fmt.Sprintf("sleep 2; exec head -c %d /dev/zero", s.o.flood)
	args := append([]string{"run", "--timeout", "15m"}, flags...)
	cmd := s.caisson(ctx, u, append(args, "--", "sh", "-c", script)...)
	var stderr bytes.Buffer
	var got count
	cmd.Stdout, cmd.Stderr = &got, &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return row{notes: []string{err.Error()}}
	}
	m := &memory{pid: cmd.Process.Pid, looked: s.looked}
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() { m.watch(&got, stop); close(watched) }()
	err := cmd.Wait()
	close(stop)
	<-watched
	took := time.Since(began)
	r := row{who: u.name, goal: "≤ idle + 32 MB", runs: "1"}
	switch {
	case err != nil:
		r.notes = append(r.notes, failure(cmd, err, stderr.String()).Error())
	case len(m.idle) == 0 || m.peak == 0:
		r.notes = append(r.notes, "it ended before its memory could be read")
	default:
		idle := median(m.idle)
		r.ours = fmt.Sprintf("idle %.1f MB, most %+.1f MB", mb(idle), mb(m.peak-idle))
	}
	r.notes = append(r.notes, fmt.Sprintf("a program that printed %.0f GB in %.0f s, of which %.3f GB were passed on; resident memory of the caisson process, every %v",
		float64(s.o.flood)/1e9, took.Seconds()-2, float64(got.Load())/1e9, sampleEvery))
	return r
}

func mb(n int64) float64 { return float64(n) / 1e6 }

// count is a writer that counts.
type count struct{ atomic.Int64 }

func (c *count) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}

// memory is what one process was seen to have.
type memory struct {
	pid  int
	idle []int64 // bytes, before the first output
	peak int64   // bytes, since

	looked func(printing bool) // see stage
}

func (m *memory) watch(printed *count, stop <-chan struct{}) {
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/status", m.pid))
		if err != nil {
			return
		}
		n, err := residentBytes(f)
		f.Close()
		printing := printed.Load() > 0
		switch {
		case err != nil: // it has just ended
			continue
		case printing:
			m.peak = max(m.peak, n)
		default:
			m.idle = append(m.idle, n)
			// Its start is not idle yet: the last second counts.
			m.idle = slices.Delete(m.idle, 0, max(0, len(m.idle)-int(time.Second/sampleEvery)))
		}
		if m.looked != nil {
			m.looked(printing)
		}
	}
}

// residentBytes reads VmRSS from /proc/PID/status.
func residentBytes(status io.Reader) (int64, error) {
	b, err := io.ReadAll(status)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		return kib << 10, err
	}
	return 0, errors.New("no VmRSS: it has ended")
}
