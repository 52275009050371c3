// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-run/caisson/attack/probe"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker/enginetest"
	"github.com/caisson-run/caisson/sandbox/faketest"
)

func TestMain(m *testing.M) {
	faketest.Init()
	if len(os.Args) > 1 && os.Args[1] == probe.Word {
		os.Exit(probe.Main(os.Args[2:]))
	}
	testscript.Main(m, map[string]func(){
		"caisson": func() {
			if real := os.Getenv("CAISSON_TEST_BINARY"); real != "" {
				panic(syscall.Exec(real, os.Args, os.Environ()))
			}
			os.Exit(Main(os.Args, fake))
		},
	})
}

func fake(string) map[string]sandbox.Driver {
	d := faketest.New()
	if why := os.Getenv("CAISSON_FAKE_UNUSABLE"); why != "" {
		d.Caps = func(c *sandbox.Capabilities) { c.Unusable, c.Remedy = why, "sysctl something" }
	}
	d.Agent = os.Getenv("CAISSON_FAKE_AGENT") != ""
	if layer := os.Getenv("CAISSON_FAKE_LAYER"); layer != "" {
		var err error
		if d.Changes, err = os.ReadFile(layer); err != nil {
			panic(err)
		}
	}
	if began := os.Getenv("CAISSON_FAKE_STUCK"); began != "" {
		daemonLimit = time.Second
		return map[string]sandbox.Driver{"gvisor": stuck{d, began}}
	}
	return map[string]sandbox.Driver{"gvisor": d}
}

// hearSignals has programs of the scripts begin with no signal ignored: a shell that runs
// the tests in the background has its children ignore SIGINT, nohup SIGHUP, and caisson
// leaves that as it is.
func hearSignals(t *testing.T) {
	heard := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(heard, s)
		}
	}
	t.Cleanup(func() { signal.Stop(heard) })
}

// TestScripts runs the scripts of the command line. They say what caisson does
// on every level: CAISSON_TEST_BINARY runs them with a built caisson and its
// real default level instead of the fake one.
func TestScripts(t *testing.T) {
	real := os.Getenv("CAISSON_TEST_BINARY")
	if os.Geteuid() != 0 && real == "" {
		t.Skip("needs root: the fake level lays out a root with mounts; set CAISSON_TEST_BINARY to run as a user")
	}
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	hearSignals(t)
	engine := startEngine(t, real)
	kept := unpacked(t, real)
	testscript.Run(t, testscript.Params{
		Dir:                 "../../testdata/script",
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "real":
				return real != "", nil
			case "root":
				return os.Geteuid() == 0, nil
			case "engine": // a container engine of the test's own
				return engine != "", nil
			case "groups": // root may make control groups; the fake level needs none
				return real == "" || os.Geteuid() == 0, nil
			case "machine": // there is what a virtual machine is made of
				_, err := exec.LookPath("qemu-system-x86_64")
				return err == nil && guestKernel() != nil, nil
			case "tun": // the process level has a network for this user
				f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
				if err == nil {
					err = f.Close()
				}
				return err == nil, nil
			case "v1": // or no cgroups, as on the fake level: no block I/O limits
				return real == "" || v2 != nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"mkfifo":   mkfifo,
			"registry": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Setenv("REGISTRY", imagetest.Registry(t)) },
			"daemon":   startDaemon,
			"setid": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Setenv("ID", strings.TrimSpace(ts.ReadFile("id")))
			},
			"mkimage": func(ts *testscript.TestScript, _ bool, args []string) { mkimage(t, ts, args) },
		},
		Setup: func(env *testscript.Env) error {
			// Not below the working directory, which scripts mount.
			state, err := os.MkdirTemp("", "caisson-state-")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(state) })
			if k := guestKernel(); k != nil {
				env.Setenv("GUEST_KERNEL", k[0])
				env.Setenv("GUEST_MODULES", k[1])
			}
			// Where -run leaves scripts out, package testscript leaves the directory of all behind.
			t.Cleanup(func() { os.Remove(filepath.Dir(env.WorkDir)) })
			if err := keep(kept, filepath.Join(state, "run")); err != nil {
				return err
			}
			env.Setenv("CAISSON_STATE", state)
			env.Setenv("CAISSON_TEST_BINARY", real)
			env.Setenv("DOCKER_HOST", engine)
			env.Setenv("ESC", "\x1b")
			return showFiles(env.WorkDir)
		},
	})
}

// startEngine starts a container engine where CAISSON_TEST_ENGINE wishes for one
// and a built caisson is tested, and returns its address.
func startEngine(t *testing.T, real string) string {
	if os.Getenv("CAISSON_TEST_ENGINE") == "" || real == "" {
		return ""
	}
	e, err := enginetest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e.Host
}

// unpacked has a built caisson unpack the engine that it carries, and names what it
// keeps of it: every script has a state directory of its own, and would pay for
// that, and wait for the disk, again.
func unpacked(t *testing.T, real string) []string {
	if real == "" {
		return nil
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(real, "run", "--", "true")
	cmd.Env = append(os.Environ(), "CAISSON_STATE="+state)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("caisson run -- true: %v: %s", err, out)
	}
	names, err := filepath.Glob(filepath.Join(state, "run", ".engine-*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("nothing that caisson carries is kept in its state directory: %v", err)
	}
	return names
}

// keep puts files into a directory that it makes, as if caisson had.
func keep(files []string, dir string) error {
	if len(files) == 0 {
		return nil
	}
	err := os.Mkdir(dir, 0o700)
	for _, f := range files {
		err = errors.Join(err, os.Link(f, filepath.Join(dir, filepath.Base(f))))
	}
	return err
}

// showFiles are those that a txtar archive cannot hold.
func showFiles(dir string) error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, content := range map[string][]byte{"bytes.want": every, "nul.py": []byte("abc\x00"), "huge.py": bytes.Repeat([]byte("#"), 16<<20+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("/etc", filepath.Join(dir, "link"))
}

// guestKernel is a kernel's file and its modules' directory, as .ci/guest-kernel has them;
// nil without.
func guestKernel() []string {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("CAISSON_GUEST_KERNEL"), "boot/vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(os.Getenv("CAISSON_GUEST_KERNEL"), "lib/modules/*"))
	if os.Getenv("CAISSON_GUEST_KERNEL") == "" || len(files) == 0 || len(modules) == 0 {
		return nil
	}
	return []string{files[0], modules[0]}
}

func mkfifo(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o644))
}

// mkimage makes a small image, whose /version is a text: mkimage push REF TEXT,
// mkimage layout DIR TEXT, mkimage archive FILE TEXT.
func mkimage(t *testing.T, ts *testscript.TestScript, args []string) {
	if len(args) != 3 {
		ts.Fatalf("mkimage push|layout|archive WHERE TEXT")
	}
	img := imagetest.New(t, imagetest.Config{
		Env: []string{"A=from the image", "PATH=/usr/bin"}, WorkingDir: "/srv", Entrypoint: []string{"sh", "-c", `echo "entry: $*"`, "entry"}, Cmd: []string{"the", "cmd"},
	}, imagetest.Programs(t, "sh", "cat", "id", "ls", "touch"), imagetest.Layer(t, "version="+args[2]+"\n"))
	switch args[0] {
	case "push":
		img.Push(args[1])
	case "layout":
		img.Layout(ts.MkAbs(args[1]))
	case "archive":
		img.Archive(ts.MkAbs(args[1]), "acme/tool:1")
	}
}
