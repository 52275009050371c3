// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gvisor_test

import (
	"bytes"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/gvisor"
)

// What is too long is told apart: an argument, all of them, a variable; and a path. With
// a list of programs it is caisson that reads them.
func TestLongArguments(t *testing.T) {
	const code = `import os
def why(path, argv, env={}):
    try: os.execve(path, argv, env)
    except OSError as e: print(e.strerror, flush=True)
why('/usr/bin/true', ['true', 'a' * 200_000])
why('/usr/bin/true', ['true'] + ['a' * 100_000] * 30)
why('/usr/bin/true', ['true'], {'A': 'a' * 200_000})
why('/' + 'a/' * 2500, ['true'])
why('/usr/bin/' + 'a' * 300, ['true'])
os.execve(os.open('/usr/bin/echo', os.O_RDONLY), ['echo', 'a' * 100_000], {}) if os.fork() == 0 else os.wait()
`
	const want = "Argument list too long\nArgument list too long\nArgument list too long\nFile name too long\nFile name too long\n"
	for name, programs := range map[string]*sandbox.Executables{
		"all": nil, "listed": {Trees: []string{"/usr"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := fixture(t)
			spec.Executables = programs
			var out, trouble bytes.Buffer
			res, err := gvisor.New(gvisor.Options{}).Run(t.Context(), spec, &sandbox.Exec{
				Argv: []string{"/usr/bin/python3", "-I", "-S", "-c", code}, Dir: "/", Stdout: &out, Stderr: &trouble,
			})
			got, long, _ := bytes.Cut(out.Bytes(), []byte("aaa"))
			if err != nil || res.Status != sandbox.StatusSuccess || string(got) != want || len(long) != 100_000-3+1 {
				t.Errorf("%+v, %v: %q, and %d bytes; %s", res, err, got, len(long), trouble.String())
			}
		})
	}
}
