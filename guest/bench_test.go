// SPDX-License-Identifier: Apache-2.0

//go:build linux

package guest_test

import (
	"io"
	"testing"

	"github.com/caisson-run/caisson/interpreter"
	"github.com/caisson-run/caisson/sandbox"
)

// The native cost of the agent, without a level below it.

func BenchmarkHealth(b *testing.B) {
	c := newClient(b)
	for b.Loop() {
		if err := c.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecTrue(b *testing.B) {
	c := newClient(b)
	for b.Loop() {
		if got, err := run(b, c, program("/bin/true")); err != nil || *got.Code != 0 {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkExecPython(b *testing.B) {
	c := newClient(b)
	for b.Loop() {
		if got, err := run(b, c, program("/usr/bin/python3", "-c", "print(1)")); err != nil || got.out != "1\n" {
			b.Fatal(got, err)
		}
	}
}

// BenchmarkStart is from nothing to the first answer.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		if err := newClient(b).Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

const bulk = 32 << 20

func BenchmarkStdout(b *testing.B) {
	c := newClient(b)
	b.SetBytes(bulk)
	for b.Loop() {
		x := program("head", "-c", "32M", "/dev/zero")
		var n counter
		x.Stdout = &n
		if _, err := run(b, c, x); err != nil || n != bulk {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkUpload(b *testing.B) {
	c := newClient(b)
	b.SetBytes(bulk)
	for b.Loop() {
		if err := c.WriteFile(b.Context(), "/tmp/f", io.LimitReader(zeros{}, bulk), sandbox.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDownload(b *testing.B) {
	c := newClient(b)
	output(b, c, "head -c 32M /dev/zero >/tmp/f")
	b.SetBytes(bulk)
	for b.Loop() {
		if _, err := c.ReadFile(b.Context(), "/tmp/f", io.Discard, bulk); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCell(b *testing.B) {
	c := newClient(b)
	runCell(b, c, interpreter.Cell{Code: "1"}) // starts the kernel
	for b.Loop() {
		if got := runCell(b, c, interpreter.Cell{Code: "1+1"}); got.main() != `"2"` {
			b.Fatalf("%+v", got)
		}
	}
}
