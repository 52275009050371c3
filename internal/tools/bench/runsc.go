// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
)

const gvisorModule = "gvisor.dev/gvisor"

// gvisorVersion is the version that this program, and so caisson, embeds.
func gvisorVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return moduleVersion(info)
}

// moduleVersion finds gVisor's version in what the linker recorded: among the
// dependencies of this program, and as the module of a stock runsc.
func moduleVersion(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != gvisorModule {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version
	}
	return ""
}

// buildRunsc makes upstream's own main package at path, with the flags that our
// binary is built with. A binary of the right version and compiler is kept: the
// first build takes minutes.
func buildRunsc(ctx context.Context, path string) error {
	if have, err := buildinfo.ReadFile(path); err == nil && have.GoVersion == runtime.Version() && moduleVersion(have) == gvisorVersion() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", path, gvisorModule+"/runsc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building a stock runsc: %w\n%s", err, &out)
	}
	return nil
}
