// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/sandbox/docker"
)

// hello is the one program of the image below: this very binary.
const hello = "/bin/hello"

// sayHello says what a program sees of an image, or what it is that it runs on.
func sayHello() {
	if len(os.Args) > 1 {
		b, err := os.ReadFile("/proc/version")
		fmt.Printf("%s%v\n", b, err)
		return
	}
	names, err := os.ReadDir("/")
	if err != nil {
		fmt.Println(err)
	}
	for _, n := range names {
		if n.Name() == ".dockerenv" || n.Name() == ".containerenv" {
			continue // the engine's own mark
		}
		fmt.Print(n.Name(), " ")
	}
	b, err := os.ReadFile("/etc/greeting")
	werr := os.WriteFile("/etc/greeting", nil, 0o644)
	to, _ := os.Readlink("/link")
	fmt.Printf("uid %d %q %v, %v, %s\n", os.Getuid(), b, err, werr != nil, to)
}

// imageFixture is a fixture on an unpacked container image.
func imageFixture(t *testing.T) *sandbox.Spec {
	t.Helper()
	spec := fixture(t)
	tree := t.TempDir()
	for _, d := range []string{"bin", "etc", "proc", "sys", "dev", "tmp", "home/user", ".caisson"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{hello: self, "etc/greeting": []byte("hello"), ".caisson/caisson-guest": []byte("#!/bin/evil")} {
		if err := os.WriteFile(filepath.Join(tree, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	var digest [32]byte
	rand.Read(digest[:])
	spec.Root = sandbox.Root{Dir: open(t, tree), Image: &sandbox.Image{Digest: "sha256:" + hex.EncodeToString(digest[:])}}
	return spec
}

// hears runs hello in a sandbox.
func hears(t *testing.T, host string, spec *sandbox.Spec) string {
	t.Helper()
	_, client := boxAt(t, host, spec)
	var out bytes.Buffer
	exit, err := client.Run(t.Context(), &sandbox.Exec{Argv: []string{hello}, Dir: "/", Stdout: &out})
	if err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	return out.String()
}

const greeting = ".caisson bin dev etc home link proc sys tmp uid 1000 \"hello\" <nil>, true, /etc/passwd\n"

func TestImage(t *testing.T) {
	spec := imageFixture(t)
	if got := hears(t, engineHost(t), spec); got != greeting {
		t.Errorf("%q, want %q", got, greeting)
	}
}

// An engine behind tcp gets the agent and the image, and nothing of this host.
func TestRemoteEngine(t *testing.T) {
	host, _ := proxy(t, nil)
	if got := hears(t, host, imageFixture(t)); got != greeting {
		t.Errorf("%q, want %q", got, greeting)
	}
	_, err := docker.New(docker.Options{Host: host}).Start(t.Context(), fixture(t))
	if !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("host files on a remote engine: %v", err)
	}
}

// Between the driver's look and the engine's mount another directory is put
// where the judged one was. The proxy does it when the engine is asked to
// start.
func TestSwappedBeforeTheEngineMounts(t *testing.T) {
	for _, who := range []string{"a directory", "a file", "a link"} {
		spec := fixture(t)
		dir := t.TempDir()
		source, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
		for _, d := range []string{source, other} {
			if who == "a file" {
				if err := os.WriteFile(d, []byte(d), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if err := os.Mkdir(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		spec.Root.Binds = append(spec.Root.Binds, sandbox.Mount{Source: open(t, source), Name: source, Target: "/data", Dir: who != "a file"})
		swap := sync.OnceFunc(func() {
			if err := os.Rename(source, source+".was"); err != nil {
				t.Error(err)
			}
			move := os.Rename
			if who == "a link" {
				move = os.Symlink
			}
			if err := move(other, source); err != nil {
				t.Error(err)
			}
		})
		_, unix := proxy(t, func(r *http.Request) string {
			if strings.HasSuffix(r.URL.Path, "/start") {
				swap()
			}
			return ""
		})
		_, err := docker.New(docker.Options{Host: unix}).Start(t.Context(), spec)
		if !errors.Is(err, sandbox.ErrDenied) || !strings.Contains(err.Error(), source) {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// An engine in a virtual machine, or behind a forwarded socket, numbers its
// processes by itself. Nothing may be mounted in the process that has such a
// number here.
func TestNumbersOfAnotherMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone makes mount namespaces, and mounts in those of others")
	}
	bystander := exec.Command("sleep", "600")
	bystander.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	find(t, "sleep\x00600\x00")
	mounts := func() string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", bystander.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := mounts()
	spec := fixture(t)
	dir := t.TempDir()
	spec.Mounts = []sandbox.Mount{{Source: open(t, dir), Name: dir, Target: "/mnt", Dir: true}}
	_, unix := proxy(t, func(r *http.Request) string {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/json") && strings.Contains(r.URL.Path, "/containers/") {
			return fmt.Sprintf(`{"State": {"Running": true, "Pid": %d}}`, bystander.Process.Pid)
		}
		return ""
	})
	if _, err := docker.New(docker.Options{Host: unix}).Start(t.Context(), spec); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	if now := mounts(); now != before {
		t.Errorf("the bystander's mounts were\n%s\nand are\n%s", before, now)
	}
}

// proxy is another address of the engine under test, over tcp and over a
// socket. see is shown every request before the engine gets it,
// and may answer in its place.
func proxy(t *testing.T, see func(*http.Request) (answer string)) (tcp, unix string) {
	t.Helper()
	engine := strings.TrimPrefix(engineHost(t), "unix://")
	dir, err := os.MkdirTemp("", "proxy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	serve := func(l net.Listener) {
		t.Cleanup(func() { l.Close() })
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c, engine, see)
		}
	}
	t1, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t2, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	go serve(t1)
	go serve(t2)
	return "tcp://" + t1.Addr().String(), "unix://" + t2.Addr().String()
}

// pass copies one connection, looking at the head of each request.
func pass(c net.Conn, engine string, see func(*http.Request) string) {
	defer c.Close()
	e, err := net.Dial("unix", engine)
	if err != nil {
		return
	}
	defer e.Close()
	go func() {
		io.Copy(c, e)
		c.Close()
	}()
	in := bufio.NewReader(c)
	for {
		head, err := in.Peek(4)
		if err != nil {
			return
		}
		if !slices.Contains([]string{"GET ", "POST", "DELE"}, string(head)) {
			io.Copy(e, in) // a hijacked connection
			return
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if see != nil {
			if answer := see(r); answer != "" {
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
				continue
			}
		}
		if r.Header.Get("Upgrade") != "" {
			r.Write(e)
			io.Copy(e, in)
			return
		}
		if r.Write(e) != nil {
			return
		}
	}
}
