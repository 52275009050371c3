// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"encoding/json"
	"io"
	"os"
	"path"
	"strings"

	"github.com/caisson-run/caisson/interpreter"
)

// kernelspec is how an installed Jupyter kernel is started.
type kernelspec struct {
	Argv          []string          `json:"argv"`
	Env           map[string]string `json:"env"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`

	dir string
}

const (
	maxSpec  = 64 << 10
	maxSpecs = 256
)

// findSpec is the installed kernel of a name, or else the first of a language.
func findSpec(u User, name string) (*kernelspec, error) {
	dirs := []string{
		path.Join(u.Home(), ".local/share/jupyter/kernels"), "/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels",
	}
	if home := variable(u.Environ(nil), "HOME"); home != "" {
		dirs[0] = path.Join(home, ".local/share/jupyter/kernels")
	}
	var found, speaks *kernelspec
	err := u.As(func() error {
		for _, dir := range dirs {
			d, err := os.Open(dir)
			if err != nil {
				continue
			}
			names, _ := d.Readdirnames(maxSpecs)
			d.Close()
			for _, n := range names {
				s := readSpec(path.Join(dir, n))
				switch {
				case s == nil:
				case strings.EqualFold(n, name) && found == nil:
					found = s
				case strings.EqualFold(s.Language, name) && speaks == nil:
					speaks = s
				}
			}
		}
		return nil
	})
	if found == nil {
		found = speaks
	}
	if err == nil && found == nil {
		err = unsupported(name, "no Jupyter kernel of that name is installed")
	}
	return found, err
}

// readSpec reads a kernel's description; nil where there is none.
func readSpec(dir string) *kernelspec {
	f, err := os.Open(path.Join(dir, "kernel.json"))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSpec))
	s := &kernelspec{dir: dir}
	if err != nil || json.Unmarshal(b, s) != nil || len(s.Argv) == 0 {
		return nil
	}
	return s
}

// program is how it is started with its connection in a file.
func (s *kernelspec) program(p Program, connection string) Program {
	for _, a := range s.Argv {
		a = strings.ReplaceAll(a, "{connection_file}", connection)
		p.Argv = append(p.Argv, strings.ReplaceAll(a, "{resource_dir}", s.dir))
	}
	for name, value := range s.Env {
		one := interpreter.ContextOptions{Env: map[string]string{name: value}}
		if one.Check() == nil && !strings.Contains(value, "${") {
			p.Env = append(p.Env, name+"="+value)
		}
	}
	return p
}
