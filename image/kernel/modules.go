// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// module is a driver that a guest loads.
type module struct {
	name    string // "virtio_blk"
	content []byte
}

// need is a driver that a guest needs, by its modules' names: any one of them will do. A
// kernel that has none cannot be used; with optional it can.
type need struct {
	names    []string
	optional bool
}

// Vsock is the driver of Firecracker's channel to the agent.
const Vsock = "vmw_vsock_virtio_transport"

// needs are in no order: modules.dep says which come first.
var needs = []need{
	{names: []string{"virtio_mmio", "virtio_pci"}},
	{names: []string{"virtio_mmio"}, optional: true},
	{names: []string{"virtio_pci"}, optional: true},
	{names: []string{"virtio_blk"}},
	{names: []string{"virtio_console", Vsock}},          // a channel to the agent
	{names: []string{"virtio_console"}, optional: true}, // QEMU's channel to the agent
	{names: []string{Vsock}, optional: true},            // Firecracker's
	{names: []string{"virtio_net"}, optional: true},     // without it there is no network
	{names: []string{"virtio_rng"}, optional: true},     // the host's random numbers
	{names: []string{"erofs"}}, {names: []string{"ext4"}}, {names: []string{"overlay"}},
}

// How large a module may be, all of them together, and a list of them, in bytes.
const (
	maxModule  = 64 << 20
	maxModules = 256 << 20
	maxList    = 16 << 20
)

// gather reads the modules that a guest needs from a kernel's directory of modules, in
// the order in which they are loaded. What the kernel has built in is not among them. Drivers
// are those of needs that it has, either way.
func gather(dir string) (found []module, drivers []string, err error) {
	builtin, err := readBounded(path.Join(dir, "modules.builtin"), maxList)
	none := errors.Is(err, fs.ErrNotExist)
	if err != nil && !none {
		return nil, nil, err
	}
	dep, err := readBounded(path.Join(dir, "modules.dep"), maxList)
	if err != nil && (none || !errors.Is(err, fs.ErrNotExist)) { // a kernel may have all built in
		return nil, nil, err
	}
	g := &gatherer{dir: dir, files: map[string]string{}, before: map[string][]string{}, have: map[string]bool{}}
	for line := range strings.Lines(string(builtin)) {
		g.have[moduleName(strings.TrimSpace(line))] = true
	}
	for line := range strings.Lines(string(dep)) {
		file, before, _ := strings.Cut(strings.TrimSpace(line), ":")
		name := moduleName(file)
		g.files[name] = file
		for _, b := range strings.Fields(before) {
			g.before[name] = append(g.before[name], moduleName(b))
		}
	}
	drivers, err = g.meetAll()
	return g.found, drivers, err
}

// builtIn are the drivers of a kernel that no modules are known of, which has all that a guest
// needs in itself, or an error. A driver has its own name in it, as a string: the device model
// and the table of file systems know it by that, and a module brings it along.
func builtIn(image []byte) (drivers []string, err error) {
	g := &gatherer{have: map[string]bool{}}
	for _, n := range needs {
		for _, name := range n.names {
			g.have[name] = bytes.Contains(image, []byte("\x00"+name+"\x00"))
		}
	}
	return g.meetAll()
}

type gatherer struct {
	dir    string
	files  map[string]string   // by a module's name
	before map[string][]string // what it needs
	have   map[string]bool     // built in, or found
	found  []module
	size   int // of those, in bytes
}

// meetAll says which drivers of needs there are.
func (g *gatherer) meetAll() (drivers []string, err error) {
	for _, n := range needs {
		if err := g.meet(n); err != nil {
			return nil, err
		}
		for _, name := range n.names {
			if g.have[name] && !slices.Contains(drivers, name) {
				drivers = append(drivers, name)
			}
		}
	}
	return drivers, nil
}

func (g *gatherer) meet(n need) error {
	for _, name := range n.names {
		if g.have[name] {
			return nil
		}
		if g.files[name] != "" {
			return g.load(name, 0)
		}
	}
	if n.optional {
		return nil
	}
	return fmt.Errorf("the kernel has no %s, neither built in nor as a module", strings.Join(n.names, " and no "))
}

func (g *gatherer) load(name string, depth int) error {
	if g.have[name] {
		return nil
	}
	if depth > 32 || g.files[name] == "" {
		return fmt.Errorf("modules.dep does not say where %s is", name)
	}
	before := g.before[name]
	for i := len(before) - 1; i >= 0; i-- { // modules.dep has the last one first
		if err := g.load(before[i], depth+1); err != nil {
			return err
		}
	}
	b, err := readModule(path.Join(g.dir, path.Clean("/"+g.files[name])))
	if err != nil {
		return err
	}
	if g.size += len(b); g.size > maxModules {
		return fmt.Errorf("its modules are larger than %d MiB together", maxModules>>20)
	}
	g.have[name] = true
	g.found = append(g.found, module{name, b})
	return nil
}

// moduleName is how the kernel calls a module: "virtio_rng" for kernel/…/virtio-rng.ko.xz.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// readModule reads a module and unpacks it: not every kernel does that by itself.
func readModule(file string) ([]byte, error) {
	b, err := readBounded(file, maxModule)
	if err != nil {
		return nil, err
	}
	var r io.Reader = bytes.NewReader(b)
	switch path.Ext(file) {
	case ".gz":
		r, err = gzip.NewReader(r)
	case ".xz":
		r, err = newUnxz(b)
	case ".zst":
		r, err = newUnzstd(r)
	}
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(r, maxModule+1))
	}
	if err == nil && len(b) > maxModule {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", file, err)
	}
	return b, nil
}
