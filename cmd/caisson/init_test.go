// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// budgets are what all package initialisers of a program together may take, in
// ms. Each run pays the engine's three times, the binary's once, and the router's
// where there is a network.
var budgets = map[string]float64{"caisson": 5, "caisson-engine": 5, "caisson-router": 2}

// initLine is what GODEBUG=inittrace=1 prints for a package that does
// something before main: "init PATH @13 ms, 1.8 ms clock, 582656 bytes, …".
var initLine = regexp.MustCompile(`(?m)^init (\S+) @[0-9.]+ ms, ([0-9.]+) ms clock`)

func TestInitBudget(t *testing.T) {
	for name, budget := range budgets {
		t.Run(name, func(t *testing.T) {
			program := ""
			if name == "caisson" {
				program = binary(t)
				if os.Getenv("CAISSON") == "" {
					budget += budgets["caisson-engine"] // a plain build is its own engine
				}
			} else {
				program = build(t, "../"+name)
			}
			testInitBudget(t, program, budget, "version") // of which the engine knows nothing, and says so
		})
	}
}

// testInitBudget takes each package's fastest of several runs: a neighbour on
// the machine makes a run slower, never faster.
func testInitBudget(t *testing.T, program string, budget float64, args ...string) {
	best := map[string]float64{}
	for range 100 {
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, _ := cmd.CombinedOutput()
		for _, m := range initLine.FindAllStringSubmatch(string(out), -1) {
			ms, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if old, ok := best[m[1]]; !ok || ms < old {
				best[m[1]] = ms
			}
		}
	}
	if len(best) < 10 {
		t.Fatalf("only %d packages are said to do something at start: is inittrace still there?", len(best))
	}
	sum := 0.0
	names := make([]string, 0, len(best))
	for name, ms := range best {
		sum += ms
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(best[b], best[a]) })
	worst := ""
	for _, name := range names[:10] {
		worst += fmt.Sprintf("\n%6.2f ms  %s", best[name], name)
	}
	t.Logf("package initialisers: %.2f ms of %.0f%s", sum, budget, worst)
	if sum > budget {
		t.Errorf("package initialisers take %.2f ms, the budget is %.0f%s", sum, budget, worst)
	}
}

// binary is the one that make build has made, or one of our own.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CAISSON"); path != "" {
		return path
	}
	return build(t, ".")
}

func build(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, dir)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func TestBinaryStaysSmall(t *testing.T) {
	info, err := os.Stat(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	const maximum = 75_000_000
	if info.Size() > maximum {
		t.Errorf("the binary has %d bytes, the bound is %d", info.Size(), maximum)
	}
}
