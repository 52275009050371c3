// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// It begins early: packages are initialised when what they import is, the first by its
// path among them (the order since Go 1.21). One import too many, net/netip say, and
// three quarters of the program come before it.
func TestEarly(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err, string(out))
	}
	order := make(map[string]int)
	for i, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "init" {
			order[f[1]] = i + 1
		}
	}
	ours := order["github.com/caisson-run/caisson/cmd/caisson/begin"]
	for _, late := range []string{"golang.org/x/text/internal/language", "net/netip", "google.golang.org/protobuf/internal/filetype", "net"} {
		if order[late] != 0 && order[late] < ours {
			t.Errorf("%s is initialised before what begins", late)
		}
	}
	if ours == 0 || order["net/netip"] == 0 {
		t.Errorf("what is there is not seen: %v", order)
	}
}
