// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/boot"
)

// argvOf is what the QEMU of a sandbox was started with.
func argvOf(id string) ([]string, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		b, err := os.ReadFile(file)
		if err == nil && bytes.Contains(b, []byte("qemu-system")) && bytes.Contains(b, []byte("\x00"+id+"\x00")) {
			return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
		}
	}
	return nil, errors.New("there is no QEMU of it")
}

// socketsOfBox is where a monitor's sockets are in its box.
const socketsOfBox = "/run/vm/"

// bare runs QEMU as a person would who has its command line: no box, nothing measured,
// nothing looked at. It ends at the answer of the guest's first process.
func (m *machines) bare(ctx context.Context) (timing, error) {
	dir, err := os.MkdirTemp("", "caisson-bare-")
	if err != nil {
		return timing{}, err
	}
	defer os.RemoveAll(dir)
	paths, err := m.paths(dir)
	if err != nil {
		return timing{}, err
	}
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	args, agent := make([]string, len(m.argv)), net.Listener(nil)
	for i, a := range m.argv {
		if _, name, found := strings.Cut(a, socketsOfBox); found {
			name, _, _ = strings.Cut(name, ",")
			l, err := net.Listen("unix", filepath.Join(dir, name))
			if err != nil {
				return timing{}, err
			}
			if listeners = append(listeners, l); name == "agent" {
				agent = l
			} else {
				go drain(l)
			}
		}
		args[i] = paths.Replace(a)
	}
	if agent == nil {
		return timing{}, fmt.Errorf("no socket of the agent in %q", m.argv)
	}
	return costs(func() (func() error, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		end := func() error {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return nil
		}
		if err := firstAnswer(agent); err != nil {
			return end, fmt.Errorf("bare QEMU: %w: %s", err, &said)
		}
		return end, nil
	})
}

// paths leads from the box to this host.
func (m *machines) paths(dir string) (*strings.Replacer, error) {
	k, err := m.kernels.Newest()
	if err != nil {
		return nil, err
	}
	agent, err := guest.OpenAgent()
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	initrd, err := k.Initrd(agent, filepath.Join(m.dir, "run", ".vm"))
	if err != nil {
		return nil, err
	}
	root := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.root.Sandbox().Image.EROFS.Fd())
	return strings.NewReplacer(socketsOfBox, dir+"/", "/run/vmlinux", k.Image(), "/run/initrd", initrd, "/run/root.erofs", root), nil
}

func drain(l net.Listener) {
	if c, err := l.Accept(); err == nil {
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
}

// firstAnswer tells the guest what it is to be, and waits for its word.
func firstAnswer(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(&boot.Config{Hostname: "bench", Root: "root", Argv: []string{guest.AgentArgv0}, Time: time.Now().UnixNano()}); err != nil {
		return err
	}
	var a boot.Answer
	if err := json.NewDecoder(c).Decode(&a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}
