// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/caisson-run/caisson/guest/wire"
)

// Init takes over in the first process of a machine, and in the process that it starts
// the agent in. In any other it returns at once.
func Init() {
	if len(os.Args) == 0 {
		return
	}
	switch {
	case os.Args[0] == Argv0 && os.Getpid() == 1:
		power(run())
	case os.Args[0] == inner && os.Getpid() == 1:
		fmt.Fprintln(os.Stderr, "caisson:", enter())
		os.Exit(1)
	}
}

// power ends the machine: a monitor that is told not to reboot ends then.
func power(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "caisson:", err)
	}
	syscall.Sync()
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	for { // a first process that ends is a panic
		time.Sleep(time.Hour)
	}
}

// run is the machine's life.
func run() error {
	if err := kernelFiles(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	port, control, channel, err := openPorts()
	if err != nil {
		return err
	}
	c, err := readConfig(port)
	if err == nil {
		c.channel = channel
		err = c.prepare()
	}
	if err != nil {
		return errors.Join(err, answer(port, Answer{Error: err.Error()}))
	}
	return c.serve(port, control)
}

// kernelFiles mounts what the kernel tells of itself.
func kernelFiles() error {
	for _, m := range []struct{ kind, at string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"cgroup2", "/cgroup"}} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := mount(m.kind, m.at, m.kind, syscall.MS_NOSUID|syscall.MS_NOEXEC, ""); err != nil {
			return err
		}
	}
	return nil
}

// loadModules loads the drivers that were gathered for this kernel, in their order.
func loadModules() error {
	files, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		params := [1]byte{}
		_, _, e := syscall.Syscall(sysFinitModule, f.Fd(), uintptr(unsafe.Pointer(&params)), 0)
		f.Close()
		if e != 0 && e != syscall.EEXIST {
			return fmt.Errorf("load %s: %w", file, e)
		}
		os.Remove(file) // its memory is the machine's again
	}
	return nil
}

const (
	// deviceWait is how long a device may take to appear.
	deviceWait  = 2 * time.Minute // of an emulated processor
	devicePause = 2 * time.Millisecond
)

// words are those of the kernel's command line.
func words() []string {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil
	}
	return strings.Fields(string(line))
}

// openPorts opens the ways to the host. What carries the channel is nil where that is a port.
func openPorts() (port, control *os.File, channel *wire.Carrier, err error) {
	how := words()
	vsock := slices.Contains(how, ChannelVsock)
	switch {
	case vsock:
		port, channel, err = openVsock(Port)
	case slices.Contains(how, ChannelPorts):
		port, channel, err = carriedPort(Port)
	default:
		port, err = openPort(Port, 0)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if vsock {
		control, _, err = openVsock(ControlPort)
	} else {
		control, err = openPort(ControlPort, 0)
	}
	return port, control, channel, err
}

// openPort opens a port, which appears some time after its device. Without a driver none
// will: a driver that is built in or was loaded is there by now.
func openPort(name string, flags int) (*os.File, error) {
	if _, err := os.Stat("/sys/class/virtio-ports"); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the machine has no port " + name + ": its kernel has no driver of such ports (virtio_console)")
	}
	for until := time.Now().Add(deviceWait); time.Now().Before(until); time.Sleep(devicePause) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, n := range names {
			if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == name {
				fd, err := syscall.Open("/dev/"+filepath.Base(filepath.Dir(n)), syscall.O_RDWR|syscall.O_CLOEXEC|flags, 0)
				return os.NewFile(uintptr(fd), "port"), err
			}
		}
	}
	return nil, errors.New("the machine has no port " + name)
}

// maxConfig is in bytes.
const maxConfig = 4 << 20

// readConfig reads a line. It reads no further, and nothing follows it until it is
// answered.
func readConfig(port *os.File) (*Config, error) {
	var line []byte
	buf := make([]byte, 64<<10)
	for until := time.Now().Add(deviceWait); ; {
		n, err := syscall.Read(int(port.Fd()), buf)
		switch {
		case err != nil && err != syscall.EINTR && err != syscall.EAGAIN:
			return nil, fmt.Errorf("read what the machine is to be: %w", err)
		case n <= 0: // the host is not there yet
			if time.Now().After(until) {
				return nil, errors.New("it was not said what the machine is to be")
			}
			time.Sleep(devicePause)
			continue
		}
		line = append(line, buf[:n]...)
		if head, _, found := bytes.Cut(line, []byte("\n")); found {
			c := new(Config)
			return c, json.Unmarshal(head, c)
		}
		if len(line) > maxConfig {
			return nil, errors.New("what the machine is to be is too long")
		}
	}
}

func answer(port *os.File, a Answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	_, err = syscall.Write(int(port.Fd()), append(b, '\n'))
	return err
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", kind, target, err)
	}
	return nil
}
