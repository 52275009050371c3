// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// The test binary starts itself again as gVisor's gofer and sentry and as a program that
// embeds caisson, as bench does.
func TestMain(m *testing.M) {
	caisson.Reexec()
	if done, err := embeds(context.Background(), os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	} else if done {
		return
	}
	os.Exit(m.Run())
}

func TestEmbeddingRow(t *testing.T) {
	s := actors(t, "exit 1", "exit 0")
	r := s.embedding(t.Context())
	if r.runs != "2" || len(r.notes) != 1 || !strings.Contains(r.notes[0], "0 of its runs failed and 0 of runsc's") || !strings.HasSuffix(r.ours, "/s") {
		t.Errorf("%+v", r)
	}
}

// A program that cannot start says why, instead of a figure.
func TestEmbeddingThatFails(t *testing.T) {
	s := actors(t, "exit 1", "exit 0")
	s.users[0].state = "/proc/nothing/here"
	if r := s.embedding(t.Context()); r.ratio != "" || len(r.notes) == 0 || !strings.Contains(r.notes[0], "/proc") {
		t.Errorf("%+v", r)
	}
}

// The row of a program that is another than this one.
func TestCarriedDriverRow(t *testing.T) {
	s := actors(t, "exit 1", "echo x")
	if r := s.carriedFirstByte(t.Context()); r.ratio != "" || len(r.notes) != 1 || !strings.Contains(r.notes[0], s.o.carrying) {
		t.Errorf("without the program: %+v", r)
	}
	s = actors(t, "exit 1", "echo x")
	var err error
	if s.o.carrying, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if r := s.carriedFirstByte(t.Context()); r.runs != "2" || len(r.notes) != 0 || !strings.Contains(r.ours, " ms (") {
		t.Errorf("%+v", r)
	}
}

func TestDriverRow(t *testing.T) {
	s := actors(t, "exit 1", "echo x")
	r := s.firstByte(t.Context())
	if r.runs != "2" || len(r.notes) != 0 || !strings.Contains(r.ours, " ms (") {
		t.Errorf("%+v", r)
	}
}
