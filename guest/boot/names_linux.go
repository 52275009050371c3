// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/sandbox"
)

// namesDir has the files that tell the sandbox's names. Each is mounted over one of the root:
// so this process can change it later, when the sandbox has its root read-only in a namespace
// of its own.
const namesDir = "/names"

// maxHosts is how much of a hosts file is read, in bytes.
const maxHosts = 1 << 20

func nameFile(f sandbox.NameFile) string {
	return filepath.Join(namesDir, strings.ReplaceAll(f.Target, "/", "-"))
}

// mountNames shows the files over those that the root has. What is not there, or is a
// link, is left.
func (c *Config) mountNames() error {
	if err := os.MkdirAll(namesDir, 0o755); err != nil {
		return err
	}
	for _, f := range c.Names {
		at := rootDir + f.Target
		if real, err := resolve(f.Target); err != nil || real != at {
			continue
		}
		info, err := os.Lstat(at)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		text := f.Text
		switch {
		case text == "":
			text, err = nameText(at)
		case f.Target == sandbox.HostsFile:
			text, err = hosts(at, f.Text)
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(nameFile(f), []byte(text), 0o644); err != nil {
			return err
		}
		if err := mount(nameFile(f), at, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// hosts is what a hosts file says with another line for the sandbox itself.
func hosts(name, line string) (string, error) {
	text, err := nameText(name)
	return sandbox.HostsFor(text, line), err
}

// nameText is what a file of names says.
func nameText(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxHosts+1))
	if err == nil && len(text) > maxHosts {
		err = fmt.Errorf("%s is too large", name)
	}
	return string(text), err
}

// setNames gives the sandbox another name. One that goes on as itself keeps what its root has
// written into these files.
func (o *Order) setNames() error {
	if now, err := os.ReadFile("/proc/sys/kernel/hostname"); o.Hostname == "" || err == nil && string(bytes.TrimSpace(now)) == o.Hostname {
		return err
	}
	for _, f := range o.Names {
		name, text := nameFile(f), f.Text
		info, err := os.Lstat(name)
		if err != nil {
			continue // the root has none
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file any more", f.Target)
		}
		if f.Target == sandbox.HostsFile {
			if text, err = hosts(name, f.Text); err != nil {
				return err
			}
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return syscall.Sethostname([]byte(o.Hostname))
}
