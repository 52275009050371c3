// SPDX-License-Identifier: Apache-2.0

//go:build linux

package caisson_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/caisson-run/caisson"
)

// TestMain is this test binary's main: it begins with Reexec, as every
// program that runs sandboxes does.
func TestMain(m *testing.M) {
	caisson.Reexec()
	dir, err := os.MkdirTemp("", "caisson-example")
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("CAISSON_STATE", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func Example() {
	res, err := caisson.Run(context.Background(), caisson.Request{
		Language: "python",
		Code:     "import sys; print(sum(int(line) for line in sys.stdin))",
		Stdin:    strings.NewReader("20\n22\n"),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, %s", res.Status, res.Stdout)
	// Output: success, 42
}
