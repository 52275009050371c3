// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

const (
	// MaxCode is the longest source of one cell, in bytes.
	MaxCode = 16 << 20
	// MaxLine is the longest event as a line of JSON, in bytes.
	MaxLine = 32 << 20

	maxID   = 64
	maxName = 128
	maxDir  = 4096
	maxEnv  = 1 << 20 // of one cell or context, in bytes
)

// CheckID says what is wrong with the ID of a context: it has 1 to 64 letters, digits,
// dots, hyphens and underscores, and no dot first.
func CheckID(id string) error {
	if len(id) == 0 || len(id) > maxID || id[0] == '.' {
		return fmt.Errorf("the ID of a context has 1 to %d characters and no dot first", maxID)
	}
	for _, c := range []byte(id) {
		if !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("._-", rune(c)) {
			return errors.New("the ID of a context has letters, digits, dots, hyphens and underscores only")
		}
	}
	return nil
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// CheckLanguage says what is wrong with the name of a language or of a Jupyter kernel:
// it has letters, digits and "._-+#", and no dot first. "" is none.
func CheckLanguage(name string) error {
	bad := strings.HasPrefix(name, ".") || len(name) > maxName
	for _, c := range []byte(name) {
		bad = bad || !letter(c) && (c < '0' || c > '9') && !strings.ContainsRune("._-+#", rune(c))
	}
	if bad {
		return fmt.Errorf("%.40q is the name of no language", name)
	}
	return nil
}

// Check says what is wrong with options of a context.
func (o *ContextOptions) Check() error {
	if o.ID != "" {
		if err := CheckID(o.ID); err != nil {
			return err
		}
	}
	return errors.Join(CheckLanguage(o.Language), checkDir(o.Dir), checkEnv(o.Env))
}

// Check says what is wrong with a cell. A NUL in its code is the kernel's to refuse.
func (c *Cell) Check() error {
	switch {
	case len(c.Code) > MaxCode:
		return fmt.Errorf("the code has more than %d MiB", MaxCode>>20)
	case c.Timeout < 0:
		return errors.New("the timeout is negative")
	case c.MaxOutput < 0:
		return errors.New("the output limit is negative")
	}
	if c.Context != "" {
		if err := CheckID(c.Context); err != nil {
			return err
		}
	}
	return errors.Join(CheckLanguage(c.Language), checkDir(c.Dir), checkEnv(c.Env))
}

func checkDir(dir string) error {
	if dir != "" && (!path.IsAbs(dir) || len(dir) > maxDir || strings.Contains(dir, "\x00")) {
		return fmt.Errorf("the directory %.80q is not absolute", dir)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	n := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return fmt.Errorf("the variable %.80q cannot be one", k)
		}
		n += len(k) + len(v)
	}
	if n > maxEnv {
		return fmt.Errorf("the variables have more than %d bytes", maxEnv)
	}
	return nil
}
