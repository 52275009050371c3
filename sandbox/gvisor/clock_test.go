// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// A program's clocks change from system calls to a page in its memory soon
// after it first looks (sentry/clock_linux.go): neither may jump then.
func TestTimeGoesOn(t *testing.T) {
	const slack = 10 * time.Millisecond
	var out, errs bytes.Buffer
	before := time.Now()
	_, err := gvisor.New(gvisor.Options{}).Run(t.Context(), fixture(t), &sandbox.Exec{
		Argv: []string{"python3", "-c", `
import time
first, back = time.time_ns(), 0
m, w = time.monotonic_ns(), time.time_ns()
end = m + 300_000_000
while m < end:
    n, v = time.monotonic_ns(), time.time_ns()
    back = max(back, m - n, w - v)
    m, w = n, v
print(first, w, back)`}, Dir: "/home/user", Env: []string{"PATH=/usr/bin:/bin"},
		Stdout: &out, Stderr: &errs,
	})
	after := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	var first, last, back int64
	if _, err := fmt.Sscan(out.String(), &first, &last, &back); err != nil {
		t.Fatalf("%v: %q, %q", err, &out, &errs)
	}
	if first < before.Add(-slack).UnixNano() || last > after.Add(slack).UnixNano() {
		t.Errorf("it was %d to %d inside, and %d to %d outside", first, last, before.UnixNano(), after.UnixNano())
	}
	if back > int64(slack) {
		t.Errorf("a clock went back by %v", time.Duration(back))
	}
}
