// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/sandbox"
)

const home = "/home/user"

// fixture is a Spec and what belongs to it, made as the session makes it: the
// host's toolchain, a private home, /tmp and /dev/shm, the usual limits.
type fixture struct {
	spec *sandbox.Spec
	env  []string
	runs int
}

// fixture makes one; change may alter the Spec before the root is built.
func (s *suite) fixture(t *testing.T, change ...func(*sandbox.Spec)) *fixture {
	t.Helper()
	w, done, err := s.makeFixture(t.Context(), s.state(t), change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	s.needMounts(t, w.spec)
	return w
}

// state is where a sandbox is to have its state. Machines share what lies beside it, as
// they do with the session: an initial RAM disk, and the tree that their monitors see.
func (s *suite) state(t *testing.T) string {
	t.Helper()
	if s.copies {
		return filepath.Join(s.dir, "run", rand.Text())
	}
	return filepath.Join(s.path(t), "state")
}

// needMounts ends a test that mounts something, where nothing of this host is shown.
func (s *suite) needMounts(t *testing.T, spec *sandbox.Spec) {
	t.Helper()
	if s.mountless && len(spec.Mounts)+len(spec.Masks) > 0 {
		s.lacks(t, "nothing of the host is mounted")
	}
}

func (s *suite) id() string { return "sbx_" + s.tag + rand.Text() }

func (s *suite) makeFixture(ctx context.Context, state string, change ...func(*sandbox.Spec)) (_ *fixture, done func(), err error) {
	if err := os.Mkdir(state, 0o700); err != nil {
		return nil, nil, err
	}
	limits := sandbox.DefaultLimits()
	spec := &sandbox.Spec{
		ID: s.id(),
		Scratch: []sandbox.Scratch{
			{Target: home},
			{Target: "/tmp", Sticky: true},
			{Target: "/dev/shm", Size: 64 << 20, Sticky: true, Memory: true},
		},
		User:     sandbox.DefaultUser(),
		Limits:   limits,
		StateDir: state,
	}
	for _, c := range change {
		c(spec)
	}
	for i := range spec.Scratch {
		if spec.Scratch[i].Target == "/tmp" {
			spec.Scratch[i].Size = spec.Limits.Tmp
		}
	}
	if s.programs != nil {
		return s.rootOfImage(ctx, spec)
	}
	var targets []image.Target
	for _, sc := range spec.Scratch {
		targets = append(targets, image.Target{Path: sc.Target, Dir: true})
	}
	for _, m := range spec.Mounts {
		targets = append(targets, image.Target{Path: m.Target, Dir: m.Dir})
	}
	for _, m := range spec.Masks {
		targets = append(targets, image.Target{Path: m.Target, Dir: m.Dir})
	}
	o := image.HostOptions{Cache: s.cache, User: spec.User, Targets: targets}
	if n := spec.Network; n != nil {
		o.NameServer = n.Gateway
	}
	root, err := image.Host(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	spec.Root = root.Sandbox()
	spec.Mounts = append(root.Mounts(), spec.Mounts...)
	env := []string{"HOME=" + spec.User.Home, "LANG=C.UTF-8", "PATH=" + strings.Join(root.Path, ":"), "USER=" + spec.User.Name}
	return &fixture{spec: spec, env: env}, func() { root.Close() }, nil
}

// mount adds a host file or directory to the Spec.
func mount(t *testing.T, source, target string, access sandbox.Access) func(*sandbox.Spec) {
	t.Helper()
	f, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return func(spec *sandbox.Spec) {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: f, Name: source, Target: target, Access: access, Dir: info.IsDir()})
	}
}

// limit changes the limits.
func limit(change func(*sandbox.Limits)) func(*sandbox.Spec) {
	return func(spec *sandbox.Spec) { change(&spec.Limits) }
}

// outcome is a run's Result and what it wrote.
type outcome struct {
	*sandbox.Result
	out, errs string
}

// exec is the program's description in w's fixture.
func (w *fixture) exec(argv ...string) *sandbox.Exec {
	return &sandbox.Exec{Argv: argv, Dir: w.spec.User.Home, Env: w.env}
}

// run runs argv in w on road r; the run itself must succeed.
func (w *fixture) run(t *testing.T, r road, argv ...string) outcome {
	t.Helper()
	return w.start(t, timeout(t), r, w.exec(argv...))
}

// start runs x and collects what it writes, unless x says where that goes.
func (w *fixture) start(t *testing.T, ctx context.Context, r road, x *sandbox.Exec) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	if x.Stdout == nil {
		x.Stdout = &out
	}
	if x.Stderr == nil {
		x.Stderr = &errs
	}
	w.fresh(t)
	res, err := r.run(ctx, w.spec, x)
	if err != nil {
		t.Fatalf("%.200q: %v (%s)\nstderr: %s", x.Argv, err, sandbox.Hint(err), &errs)
	}
	if ctx.Err() == context.DeadlineExceeded && t.Context().Err() == nil {
		t.Logf("%.200q ran into the test's deadline", x.Argv)
	}
	return outcome{res, out.String(), errs.String()}
}

// fresh makes a fixture that was used already into another one like it.
func (w *fixture) fresh(t *testing.T) {
	t.Helper()
	if w.runs++; w.runs == 1 {
		return
	}
	w.spec.ID = w.spec.ID[:len("sbx_")+10] + rand.Text()
	w.spec.StateDir += "+"
	if err := os.Mkdir(w.spec.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// ok demands a program that ended with 0.
func (o outcome) ok(t *testing.T) outcome {
	t.Helper()
	if o.Status != sandbox.StatusSuccess || o.ExitCode == nil || *o.ExitCode != 0 {
		t.Fatalf("want success, got %s\nstdout: %.2000s\nstderr: %.2000s", o.describe(), o.out, o.errs)
	}
	return o
}

// exited demands a program's own exit code.
func (o outcome) exited(t *testing.T, code int) outcome {
	t.Helper()
	if o.ExitCode == nil || *o.ExitCode != code || o.Signal != "" || o.Resource != "" {
		t.Errorf("want exit code %d, got %s\nstderr: %.2000s", code, o.describe(), o.errs)
	}
	return o
}

// exceeded demands that a limit ended the program, and which.
func (o outcome) exceeded(t *testing.T, name sandbox.LimitName) {
	t.Helper()
	if o.Status != sandbox.StatusResourceExceeded || o.Resource != name {
		t.Errorf("want the limit %s to end it, got %s\nstdout: %.2000s\nstderr: %.2000s", name, o.describe(), o.out, o.errs)
	}
}

func (o outcome) describe() string {
	b, err := json.Marshal(o.Result)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// python runs a script in w that must end with 0, and reads the JSON it prints.
func (w *fixture) python(t *testing.T, r road, script string, answer any, args ...string) outcome {
	t.Helper()
	o := w.run(t, r, append([]string{"python3", "-I", "-S", "-c", prelude + script}, args...)...).ok(t)
	if err := json.Unmarshal([]byte(o.out), answer); err != nil {
		t.Fatalf("%v\nstdout: %.2000s\nstderr: %.2000s", err, o.out, o.errs)
	}
	return o
}

// prelude is what scripts use: say() prints the answer, attempt() gives None
// or the name of the error that a call ends with.
const prelude = `
import os, sys, json, errno, socket, signal, time, stat
def say(x): print(json.dumps(x), flush=True)
def attempt(f, *a):
    try: f(*a)
    except OSError as e: return errno.errorcode.get(e.errno, str(e.errno))
def put(path, data=b'x', mode='wb'):
    with open(path, mode) as f: f.write(data)
def mine(*but): # a server of the sandbox's own, on none of the ports that the host has
    held = [socket.create_server(('127.0.0.1', 0))]
    while held[-1].getsockname()[1] in but: held.append(socket.create_server(('127.0.0.1', 0)))
    return held[-1]
`

// write makes a file on the host.
func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pipe is a stdin that a test writes to while the program runs.
func pipe(t *testing.T) (io.Reader, io.WriteCloser) {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r, w
}
