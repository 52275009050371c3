// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is executed along with a program is read from files that any user may
// have made.
func TestLoaders(t *testing.T) {
	for _, head := range []string{"", "\x7fELF", "\x7fELF\x02\x01" + strings.Repeat("\xff", 100), "\x7fELF\x02\x01" + strings.Repeat("\x00", 100), "#!", "#! ", "#!/bin/sh"} {
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte(head), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		words, _, err := alongside(f)
		f.Close()
		if err != nil || strings.Join(words, " ") != strings.TrimPrefix(strings.TrimSpace(head), "#!") && strings.HasPrefix(head, "#!") || len(words) > 1 {
			t.Errorf("%q: %q, %v", head, words, err)
		}
	}
}

func FuzzLoader(f *testing.F) {
	if b, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(b[:min(len(b), 1<<12)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if name := loaderOf(b, strings.NewReader(string(b))); len(name) > 4096 {
			t.Fatal(len(name))
		}
	})
}
