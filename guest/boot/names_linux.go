// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"errors"
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

// maxHosts is how much of a file of names is read, in bytes.
const maxHosts = 1 << 20

func nameFile(f sandbox.NameFile) string {
	return filepath.Join(namesDir, strings.ReplaceAll(f.Target, "/", "-"))
}

// mountNames shows the files over those that the root has. What is not there, or is a
// link, is left, and so is what is too large: no name is worth a machine that does not boot.
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
		text, err := nameText(f, at)
		if errors.Is(err, errTooLarge) {
			continue
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
		c.cover(at)
	}
	return nil
}

var errTooLarge = errors.New("too large for a file of names")

// nameText is what f is to say, where the root has another one. Without a text of its own it
// says what that does, and a hosts file keeps its other lines.
func nameText(f sandbox.NameFile, root string) (string, error) {
	if f.Text != "" && f.Target != sandbox.HostsFile {
		return f.Text, nil
	}
	in, err := os.Open(root)
	if err != nil {
		return "", err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxHosts+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxHosts:
		return "", errTooLarge
	case f.Text == "":
		return string(text), nil
	}
	return sandbox.HostsFor(string(text), f.Text), nil
}

// setNames gives the sandbox another name. One that goes on as itself keeps what its root has
// written into these files.
func (o *Order) setNames() error {
	if now, err := os.ReadFile("/proc/sys/kernel/hostname"); o.Hostname == "" || err == nil && string(bytes.TrimSpace(now)) == o.Hostname {
		return err
	}
	for _, f := range o.Names {
		name := nameFile(f)
		info, err := os.Lstat(name)
		if err != nil {
			continue // the root has none
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file any more", f.Target)
		}
		text, err := nameText(f, name)
		if errors.Is(err, errTooLarge) { // by what its root has written
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return syscall.Sethostname([]byte(o.Hostname))
}
