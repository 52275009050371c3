// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/process"
)

// What the agent starts has no more rights than what is run without it, though
// the agent has some.
func TestProgramOfTheAgent(t *testing.T) {
	spec := fixture(t)
	inst, err := process.New(process.Options{}).Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Destroy(t.Context())
	conn, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := guest.NewClient(conn, guest.Options{User: spec.User, Limits: spec.Limits})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out strings.Builder
	if _, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/cat", "/proc/self/status"}, Dir: "/tmp", Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	const none = "0000000000000000"
	want := map[string]string{
		"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
		"Uid": "1000 1000 1000 1000", "SigBlk": none, "SigIgn": none,
	}
	got := make(map[string]string)
	for line := range strings.Lines(out.String()) {
		key, value, _ := strings.Cut(line, ":")
		if _, ok := want[key]; ok {
			got[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The agent, which is the second process, is not seen through.
	out.Reset()
	_, err = client.Run(t.Context(), &sandbox.Exec{Argv: []string{"/bin/sh", "-c", "ls /proc/2/fd; cat /proc/2/environ; echo > /proc/2/mem"}, Dir: "/tmp", Stdout: &out})
	if err != nil || strings.TrimSpace(out.String()) != "" {
		t.Errorf("of the agent: %q, %v", out.String(), err)
	}
}

// No program becomes root here: root inside would be talking to the host's
// kernel.
func TestSudoIsRefused(t *testing.T) {
	spec := fixture(t)
	spec.Sudo = true
	if inst, err := process.New(process.Options{}).Start(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "sudo") {
		if err == nil {
			inst.Destroy(t.Context())
		}
		t.Errorf("it is refused with %v", err)
	}
}
