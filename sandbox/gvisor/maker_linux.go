// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/internal/linux/engine"
)

// maker is what wrote a snapshot, as far as its memory goes on nowhere else. What is empty
// is not known: a snapshot of before it was written down is tried.
type maker struct {
	Engine string   `json:"engine,omitempty"` // gVisor's version
	CPU    []string `json:"cpu,omitempty"`    // what the processor can do, sorted
}

// here is this caisson on this host.
var here = sync.OnceValue(func() maker {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return maker{Engine: engine.GVisor()}
	}
	return maker{engine.GVisor(), features(info)}
})

// features are those of the first processor, which proc_cpuinfo(5) calls flags, or
// Features on arm64.
func features(info []byte) []string {
	for line := range bytes.Lines(info) {
		name, list, _ := strings.Cut(string(line), ":")
		if name = strings.TrimSpace(name); name == "flags" || name == "Features" {
			all := strings.Fields(list)
			slices.Sort(all)
			return all
		}
	}
	return nil
}

// misfit says why memory that m wrote goes on nowhere but there; empty where it fits now.
// A program may have found out what the processor can do: it has to be there again.
func (m maker) misfit(now maker) string {
	if m.Engine != "" && now.Engine != "" && m.Engine != now.Engine {
		return "by another version of gVisor (" + m.Engine + ")"
	}
	for _, f := range m.CPU {
		if _, found := slices.BinarySearch(now.CPU, f); !found {
			return "on another processor (with " + f + ")"
		}
	}
	return ""
}

// Fingerprint names what memory that is kept here goes on with: another one has to make it
// anew.
func (d *Driver) Fingerprint() string {
	return strings.Join(append([]string{here().Engine}, here().CPU...), " ")
}
