// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/attack/probe"
)

// plants are the canaries of one run of the suite.
type plants struct {
	dir       string // all files
	out       string // those that are not shown
	data      string // shown read-only
	workspace string // shown read-write
	nonce     string
	random    string
	secret    string // given to the sandbox, and to be in no record

	before  map[string]string // contents of files that must not change
	victim  *exec.Cmd
	at      uint64 // where its canary is in its memory
	hit     atomic.Bool
	touched sync.Map // listeners that were reached: case → true
	config  probe.Config
	undo    []func()
}

// token is the canary of a case.
func (p *plants) token(id string) string { return "caisson-canary-" + id + "-" + p.random }

// plant makes everything.
func plant(program string) (_ *plants, err error) {
	p := &plants{before: make(map[string]string)}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	p.random = hex.EncodeToString(raw)
	p.nonce = "caisson-attack-" + p.random[:16]
	p.secret = "caisson-secret-" + p.random
	for _, step := range []func() error{p.files, p.inherited, p.listeners, p.key, func() error { return p.process(program) }} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	p.config.Nonce, p.config.Outside, p.config.Victim, p.config.VictimAt = p.nonce, p.out, p.victim.Process.Pid, p.at
	p.config.Disks, p.config.Groups = disks(), hierarchy()
	return p, nil
}

// remove takes everything away, last first.
func (p *plants) remove() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		p.undo[i]()
	}
	p.undo = nil
}

func (p *plants) files() (err error) {
	if p.dir, err = os.MkdirTemp("", "caisson-attack-"); err != nil {
		return err
	}
	p.undo = append(p.undo, func() { _ = os.RemoveAll(p.dir) })
	p.out, p.workspace = filepath.Join(p.dir, "outside"), filepath.Join(p.dir, "workspace")
	p.data = filepath.Join(p.out, "data")
	for _, d := range []string{p.out + "/data-evil", p.data, p.workspace + "/sub/private", p.workspace + "/empty", p.workspace + "/.git/hooks", p.workspace + "/.git/objects", p.workspace + "/.git/refs",
		p.workspace + "/web/.vscode", p.workspace + "/web/.husky", p.workspace + "/web/sub/.git/refs", p.workspace + "/web/sub/.git/objects", p.workspace + "/tools/hooks"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	content := map[string]string{
		p.data + "/F09": "unchanged\n", p.data + "/F21": "unchanged\n", p.data + "/F25": "read it\n",
		p.workspace + "/.git/HEAD": "ref: refs/heads/main\n", p.workspace + "/.git/config": gitConfig,
		p.workspace + "/web/.vscode/tasks.json": "{}\n", p.workspace + "/web/.husky/pre-commit": "#!/bin/sh\n", p.workspace + "/tools/hooks/pre-commit": "#!/bin/sh\n",
		p.workspace + "/web/sub/.git/HEAD": "ref: refs/heads/main\n", p.workspace + "/web/sub/.git/config": "[core]\n\tbare = false\n",
		p.workspace + "/F22": "#!/bin/sh\n",
	}
	for _, id := range []string{"F06", "F07", "F10", "F17", "F19", "F20", "K17", "S03"} {
		content[p.out+"/"+id] = p.token(id) + "\n"
	}
	content[p.out+"/data-evil/F12"] = p.token("F12") + "\n"
	content[p.workspace+"/.env"] = p.token("F13") + "\n"
	content[p.workspace+"/sub/private/F14"] = p.token("F14") + "\n"
	content[p.workspace+"/.env.F21"] = p.token("F21") + "\n"
	content[p.workspace+"/.env.F22"] = p.token("F22") + "\n"
	for name, text := range content {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	p.before = map[string]string{
		"F09": p.data + "/F09", "F21": p.data + "/F21", "F16": p.workspace + "/.git/config",
	}
	for link, target := range map[string]string{
		p.workspace + "/link": p.out + "/F19", p.workspace + "/to-env": ".env", p.data + "/up": "../data-evil",
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	p.handle(p.out + "/F06")
	p.setUserID()
	return filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o755) // whatever the umask: what shows here must be what is not shown inside
		}
		return err
	})
}

// gitConfig is that of the workspace's repository.
const gitConfig = "[core]\n\tbare = false\n\thooksPath = tools/hooks\n"

// hidden are the patterns of files that the sandbox is not to see.
func hidden() []string { return []string{"**/.env", "**/.env.F21", "**/.env.F22", "**/private"} }

// handle is what open_by_handle_at takes, where the file system has such.
func (p *plants) handle(path string) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
	if err == nil {
		p.config.Handle, p.config.HandleType = h.Bytes(), h.Type()
	}
}

// setUserID makes a copy of id that belongs to root and has the bit, where this
// is root.
func (p *plants) setUserID() {
	program, err := exec.LookPath("id")
	if err != nil || os.Geteuid() != 0 {
		return
	}
	data, err := os.ReadFile(program)
	if err == nil && os.WriteFile(p.data+"/K14", data, 0o755) == nil {
		_ = os.Chmod(p.data+"/K14", 0o755|os.ModeSetuid)
	}
}

// inherited makes this process one that a careless launcher would be: with
// secrets in its environment and open descriptors that a child inherits.
func (p *plants) inherited() error {
	for _, id := range []string{"S01", "S02"} {
		name := "CAISSON_ATTACK_" + id
		if err := os.Setenv(name, p.token(id)); err != nil {
			return err
		}
		p.undo = append(p.undo, func() { _ = os.Unsetenv(name) })
	}
	f, err := os.Open(p.out + "/S03")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.leak(f); err != nil {
		return err
	}
	master, slave, err := pty.Open()
	if err != nil {
		return nil // no terminals here: nothing to inherit
	}
	defer slave.Close()
	p.undo = append(p.undo, func() { master.Close() })
	return p.leak(slave)
}

// leak keeps a second descriptor of f without close-on-exec.
func (p *plants) leak(f *os.File) error {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 100)
	if err != nil {
		return err
	}
	p.undo = append(p.undo, func() { _ = unix.Close(fd) })
	return nil
}

// listeners are services of the host that only it should reach.
func (p *plants) listeners() error {
	p.config.Abstract = p.nonce
	for _, l := range []struct{ id, network, address string }{
		{"N01", "tcp", "127.0.0.1:0"}, {"N03", "unix", "@" + p.nonce}, {"N04", "unix", p.out + "/N04.sock"},
		{"N04", "unix", p.data + "/N04.sock"}, {"N04", "unix", p.workspace + "/N04.sock"},
		{"K17", "unix", p.data + "/K17.sock"}, {"K17", "unix", p.workspace + "/K17.sock"},
	} {
		listener, err := net.Listen(l.network, l.address)
		if err != nil {
			return err
		}
		p.undo = append(p.undo, func() { listener.Close() })
		if a, ok := listener.Addr().(*net.TCPAddr); ok {
			p.config.TCP = a.Port
		}
		if l.network == "unix" && l.address[0] == '/' {
			_ = os.Chmod(l.address, 0o777)
		}
		go p.accept(l.id, listener)
	}
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.undo = append(p.undo, func() { udp.Close() })
	p.config.UDP = udp.LocalAddr().(*net.UDPAddr).Port
	go func() {
		data := make([]byte, 4096)
		for {
			n, _, err := udp.ReadFrom(data)
			if err != nil {
				return
			}
			if strings.Contains(string(data[:n]), p.nonce) {
				p.touched.Store("N01", true)
			}
		}
	}()
	return nil
}

// accept notes connections that know the nonce, and answers them with a canary.
func (p *plants) accept(id string, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			line, _ := bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
			if strings.TrimSpace(line) == p.nonce {
				p.touched.Store(id, true)
				p.answer(id, conn)
			}
		}()
	}
}

// answer gives who got through a canary, or a descriptor of one.
func (p *plants) answer(id string, conn net.Conn) {
	local, ok := conn.(*net.UnixConn)
	if !ok || id != "K17" {
		fmt.Fprintln(conn, p.token(id))
		return
	}
	if f, err := os.Open(p.out + "/K17"); err == nil {
		defer f.Close()
		_, _, _ = local.WriteMsgUnix([]byte("\n"), unix.UnixRights(int(f.Fd())), nil)
	}
}

// key is one in the session keyring, for a sandbox that shares it.
func (p *plants) key() error {
	p.undo = append(p.undo, func() { p.keyFrom() })
	id, err := unix.AddKey("user", p.nonce+"-outside", []byte(p.token("K09")), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		return nil // a host without keyrings, or a quota that is used up
	}
	p.undo = append(p.undo, func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_SESSION_KEYRING, 0, 0) })
	return nil
}

// keyFrom finds the keys that a sandbox has added, and takes them away.
func (p *plants) keyFrom() bool {
	found := false
	for _, ring := range []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING} {
		for range 8 { // a search goes on into keyrings that are linked
			id, err := unix.KeyctlSearch(ring, "user", p.nonce+"-inside", 0)
			if err != nil {
				break
			}
			found = true
			_, _ = unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
		}
	}
	return found
}

// process is a victim with no other purpose.
func (p *plants) process(program string) error {
	f, err := os.Open(p.out + "/K17")
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.Command(program, probe.Word, probe.ModeVictim)
	cmd.Env, cmd.ExtraFiles = []string{}, []*os.File{f}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.victim = cmd
	gone := make(chan struct{})
	p.undo = append(p.undo, func() {
		in.Close()
		_ = cmd.Process.Kill()
		<-gone
	})
	lines := bufio.NewScanner(out)
	began := false
	if _, err = io.WriteString(in, p.token("K11")); err == nil && lines.Scan() {
		p.at, err = strconv.ParseUint(lines.Text(), 10, 64)
		began = true
	}
	go func() {
		for lines.Scan() {
			p.hit.Store(true)
		}
		_ = cmd.Wait()
		close(gone)
	}()
	if err == nil && !began {
		err = errors.New("the program that is to be the probe does not start as one")
	}
	return err
}

// disks are the device numbers of the host's disks.
func disks() [][2]int {
	data, _ := os.ReadFile("/proc/partitions")
	var all [][2]int
	for line := range strings.Lines(string(data)) {
		var major, minor int
		if n, _ := fmt.Sscan(line, &major, &minor); n == 2 && len(all) < 4 {
			all = append(all, [2]int{major, minor})
		}
	}
	return all
}

// hierarchy names a hierarchy of control groups of v1 that is there.
func hierarchy() string {
	data, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(data)) {
		if parts := strings.SplitN(line, ":", 3); len(parts) == 3 && parts[1] != "" && !strings.HasPrefix(parts[1], "name=") {
			return parts[1]
		}
	}
	return ""
}
