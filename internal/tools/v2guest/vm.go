// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	bootLimit   = 4 * time.Minute // seconds on a quiet machine; see boot
	scratchSize = 1 << 30
)

// vm is a running guest.
type vm struct {
	dir  string
	img  image
	job  map[string]string // what is in its /job, by name, and where it is from
	qemu *exec.Cmd
	conn net.Conn
	gone chan struct{} // closed when the agent's stream has ended

	mu   sync.Mutex // guards what is below, and writing to conn
	last int
	runs map[int]chan Event
}

// boot starts a guest with files in its /job and waits for its agent: 3 to 6 s
// with the tiny init, 10 to 13 s with systemd, on two quiet processors.
//
// The processor is emulated: /dev/kvm is not there for everyone, and this way
// the guest is the same everywhere. cx16 is left out of its features because
// Debian 13's kernel crashes on QEMU 7.2's emulation of it. gVisor goes on with no
// snapshot where xsave is missing, and with that but without xsaveopt the guest does not
// boot. With V2_CPUS=1 gVisor's suite took less where the host's processors were busy
// (two runs of one promise 26 s of processor time, with two more than 52, once):
// emulated ones wait for each other.
func boot(ctx context.Context, img image, initName string, files []string) (_ *vm, err error) {
	if initName != "tiny" && initName != "systemd" {
		return nil, fmt.Errorf("init %q: tiny or systemd", initName)
	}
	dir, err := os.MkdirTemp("", "caisson-v2guest-")
	if err != nil {
		return nil, err
	}
	g := &vm{dir: dir, img: img, job: map[string]string{}, gone: make(chan struct{}), runs: map[int]chan Event{}}
	for _, f := range files {
		g.job[filepath.Base(f)] = f
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if err := writeJob(g.path("job"), files); err != nil {
		return nil, err
	}
	if err := makeScratch(ctx, g.path("scratch")); err != nil {
		return nil, err
	}
	disk := func(id, file, how string) []string {
		return []string{
			"-drive", "id=" + id + ",file=" + file + ",format=raw,if=none," + how,
			"-device", "virtio-blk-pci,drive=" + id,
		}
	}
	args := []string{
		"-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "qemu64,-cx16,+xsave,+xsaveopt", "-m", "2048", "-smp", cmp.Or(os.Getenv("V2_CPUS"), "2"),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", img.kernel(), "-initrd", img.initrd(),
		"-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off random.trust_cpu=on no_timer_check " +
			"systemd.show_status=0 systemd.unit=v2.target v2.init=" + initName,
		"-serial", "file:" + g.path("console"),
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,server=on,wait=off,path=" + g.path("agent"),
		"-device", "virtserialport,chardev=agent,name=" + portName,
	}
	args = append(args, disk("root", img.root(), "readonly=on")...)
	args = append(args, disk("job", g.path("job"), "readonly=on")...)
	args = append(args, disk("scratch", g.path("scratch"), "cache=unsafe")...)

	g.qemu = exec.Command("qemu-system-x86_64", args...)
	log, err := os.Create(g.path("qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	g.qemu.Stdout, g.qemu.Stderr = log, log
	// A group of its own: Ctrl-C is for us, and we end it.
	g.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := g.qemu.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	if err := g.hello(ctx); err != nil {
		return nil, fmt.Errorf("boot with %s: %w\n%s%s", initName, err, g.tail("qemu.log"), g.tail("console"))
	}
	return g, nil
}

func (g *vm) path(name string) string { return filepath.Join(g.dir, name) }

// tail is the end of a log, for errors.
func (g *vm) tail(name string) string {
	text, err := os.ReadFile(g.path(name))
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-4000):])
}

// hello connects to the agent's port, and waits until the agent is up.
func (g *vm) hello(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for g.conn == nil {
		conn, err := dialer.DialContext(ctx, "unix", g.path("agent"))
		if err == nil {
			g.conn = conn
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { g.conn.Close() })
	defer stop()
	dec := json.NewDecoder(g.conn)
	var e Event
	if err := dec.Decode(&e); err != nil {
		return errors.Join(err, ctx.Err())
	}
	if !e.Hello {
		return fmt.Errorf("the agent's first word was %+v", e)
	}
	go g.receive(dec)
	return nil
}

// receive hands events to the commands they belong to.
func (g *vm) receive(dec *json.Decoder) {
	defer close(g.gone)
	for {
		var e Event
		if err := dec.Decode(&e); err != nil {
			return
		}
		g.mu.Lock()
		run := g.runs[e.ID]
		if e.Done {
			delete(g.runs, e.ID)
		}
		g.mu.Unlock()
		if run != nil {
			run <- e
		}
	}
}

// Run runs one command in the guest. Its exit code is no error.
func (g *vm) Run(ctx context.Context, c Command, stdout, stderr io.Writer) (int, error) {
	events := make(chan Event)
	g.mu.Lock()
	g.last++
	c.ID = g.last
	g.runs[c.ID] = events
	err := json.NewEncoder(g.conn).Encode(c)
	g.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for {
		select {
		case e := <-events:
			if e.Done && e.Error != "" {
				return 0, errors.New("in the guest: " + e.Error)
			}
			if e.Done {
				return e.Code, nil
			}
			if _, err := stdout.Write(e.Out); err != nil {
				return 0, err
			}
			if _, err := stderr.Write(e.Err); err != nil {
				return 0, err
			}
		case <-g.gone:
			return 0, errors.New("the guest has gone away\n" + g.tail("console"))
		case <-ctx.Done():
			return 0, ctx.Err() // the guest is of no further use: Close it
		}
	}
}

// Close ends the guest. There is nothing in it to keep.
func (g *vm) Close() error {
	if g.conn != nil {
		g.conn.Close()
	}
	if g.qemu != nil && g.qemu.Process != nil {
		g.qemu.Process.Kill()
		g.qemu.Wait()
	}
	return os.RemoveAll(g.dir)
}

// writeJob writes files as a tar, which the guest reads from the raw disk.
func writeJob(path string, files []string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	tw := tar.NewWriter(out)
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.Base(name), Mode: 0o755, Size: int64(len(content))}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(content); err != nil {
			return err
		}
	}
	return tw.Close()
}

// makeScratch makes an empty ext4, which is what the product meets on most
// hosts: the guest's own root is an overlay, on which no other can lie.
func makeScratch(ctx context.Context, path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(path, scratchSize); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", "-O", "^has_journal", path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}
