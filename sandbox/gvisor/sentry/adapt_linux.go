// SPDX-License-Identifier: Apache-2.0

package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	_ "unsafe" // for go:linkname

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

//go:generate go test -count=1 -v -run ^TestGenerateFilters$ . -generate

// MemoryAnnotation is the key in a spec's annotations under which the driver
// says how many bytes of memory the sandbox shall see (MemTotal).
const MemoryAnnotation = "dev.caisson.memory"

// gVisor's module offers no way to say these things, so they are put where it
// keeps them. All are looked at by tests against every version of gVisor that
// caisson moves to.

// kernelPrograms and goferPrograms are the tables of precompiled seccomp
// filters, empty in the Go module. They stay by the rule of speed: compiling the filters
// takes 14 to 21 ms of each run.
//
//go:linkname kernelPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var kernelPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

// tmpfsOptions are the mount options that gVisor's loader passes to its
// tmpfs. The tmpfs itself knows nr_inodes, the loader does not let it through. It stays
// because a limit rests on it: how many files a sandbox may make.
//
//go:linkname tmpfsOptions gvisor.dev/gvisor/runsc/boot.tmpfsAllowedData
var tmpfsOptions []string

// adapt changes what gVisor's gofer and sentry do by themselves, before they start.
func adapt() {
	if !slices.Contains(tmpfsOptions, "nr_inodes") {
		tmpfsOptions = append(tmpfsOptions, "nr_inodes")
	}
	skipLogging(os.Args)
	switch {
	case slices.Contains(os.Args, "boot"):
		adaptKernel()
	case slices.Contains(os.Args, "gofer"):
		// The kernel opens mounted files by itself: there is little to do at
		// once, and threads that look for work cost more than they find.
		runtime.GOMAXPROCS(1)
		gofer.GetPrecompiled("") // makes the table, once
		for _, p := range goferFilters() {
			goferPrograms[p.Name] = p
		}
	}
}

func adaptKernel() {
	said, err := annotations(os.Args)
	if err != nil {
		panic(err) // it may say what must be refused
	}
	listed, err := parsePrograms(said[ProgramsAnnotation])
	if err != nil {
		panic(err)
	}
	os.Args = takePassed(os.Args, StatusFD, statusVariable)
	os.Args = takePassed(os.Args, ChangesFD, changesVariable)
	os.Args = takePassed(os.Args, HitsFD, hitsVariable)
	noted, err := parseHits(said[HitsAnnotation])
	if err != nil {
		panic(err)
	}
	if wanted, err = parseChanges(said[ChangesAnnotation]); err != nil {
		panic(err)
	}
	named, err := parseNames(said[NamesAnnotation])
	if err != nil {
		panic(err)
	}
	for _, table := range syscallTables {
		withholdNamespaces(table)
		startClocks(table)
		if listed != nil {
			listed.hold(table)
		}
		if wanted != nil {
			wanted.hold(table)
		}
		if named != nil {
			named.hold(table)
		}
		nameLongArguments(table)
		if noted != nil {
			noted.hold(table)
			showProcessors(table, noted.Processors)
		}
	}
	filter.GetPrecompiled("") // makes the table, once
	for _, p := range kernelFilters() {
		kernelPrograms[p.Name] = p
	}
	lightenUnmount(os.Args)
	os.Args = takeScratch(os.Args)
	if n, err := strconv.ParseInt(said[MemoryAnnotation], 10, 64); err == nil && n > 0 {
		showMemory(os.Args, n)
	}
}

// annotations are those of the spec that boot was handed. The descriptor is read
// without moving its offset.
func annotations(args []string) (map[string]string, error) {
	fd, err := strconv.Atoi(flagValue(args, "--spec-fd"))
	if err != nil {
		return nil, errors.New("the kernel was started without a spec")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("the spec: %w", err)
	}
	if st.Size <= 0 || st.Size > 16<<20 {
		return nil, fmt.Errorf("the spec has %d bytes", st.Size)
	}
	data := make([]byte, st.Size)
	if n, err := unix.Pread(fd, data, 0); err != nil || n != len(data) {
		return nil, fmt.Errorf("the spec: %d of %d bytes: %w", n, len(data), err)
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("the spec: %w", err)
	}
	return spec.Annotations, nil
}

// showMemory makes programs inside see n bytes of memory instead of the
// host's: runtimes size their heaps by it.
func showMemory(args []string, n int64) {
	for i, a := range args {
		if strings.HasPrefix(a, "--total-memory=") {
			args[i] = "--total-memory=" + strconv.FormatInt(n, 10)
		} else if a == "--total-memory" && i+1 < len(args) {
			args[i+1] = strconv.FormatInt(n, 10)
		}
	}
}

func flagValue(args []string, name string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			return v
		}
		if a == name && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}
