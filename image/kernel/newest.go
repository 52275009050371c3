// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// newestKernel is the file in boot of the highest version whose modules are here. A
// cloud kernel, which has what a guest needs and little else, comes before others.
func newestKernel(boot, modules string) (string, error) {
	files, err := filepath.Glob(filepath.Join(boot, "vmlinuz-*"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f string) bool {
		_, err := os.Stat(filepath.Join(modules, versionIn(f), "modules.dep"))
		return err != nil
	})
	if len(files) == 0 {
		return "", &sandbox.Error{Op: "import kernel", Kind: sandbox.ErrNotFound, Problem: "no kernel in " + boot + " has its modules in " + modules,
			Hint: "apt-get install linux-image-cloud-amd64, or name a file"}
	}
	return slices.MaxFunc(files, func(a, b string) int {
		if x, y := strings.Contains(a, "cloud"), strings.Contains(b, "cloud"); x != y {
			if x {
				return 1
			}
			return -1
		}
		return compareVersions(versionIn(a), versionIn(b))
	}), nil
}

func versionIn(file string) string { return strings.TrimPrefix(filepath.Base(file), "vmlinuz-") }

// compareVersions compares numbers as numbers: 6.10 is more than 6.9.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA, digitsA := piece(a)
		y, restB, digitsB := piece(b)
		if digitsA && digitsB {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return len(a) - len(b)
}

// piece is what s begins with: digits, or what is none.
func piece(s string) (first, rest string, digits bool) {
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' }
	digits = isDigit(s[0])
	i := 1
	for i < len(s) && isDigit(s[i]) == digits {
		i++
	}
	return s[:i], s[i:], digits
}
