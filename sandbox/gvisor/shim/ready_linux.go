// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// ready is what a shim has done before its order comes: all that is the same
// whatever it will be told to make. The owner still has its own to do then, and
// from the order on it is waited for.
type ready struct {
	flags  *flag.FlagSet // gVisor's, all at their defaults
	hidden int           // the directory under the stage, open; as root
	err    error         // what went wrong; the order's sender is told
}

func getReady() *ready {
	r := &ready{flags: flag.NewFlagSet("caisson", flag.ContinueOnError)}
	config.RegisterFlags(r.flags)
	if os.Geteuid() == 0 {
		r.hidden, r.err = layStage()
	}
	if r.err == nil {
		if err := forbidSetID(); err != nil {
			r.err = fmt.Errorf("forbidding set-user-id files: %w", err)
		}
	}
	// encoding/json works out how a type is read, and all types in it, when it
	// first meets it; and os whether the kernel has descriptors of processes
	// when it first starts one, by starting one.
	for _, v := range []any{new(protocol.Order), new(specs.Spec), new(container.Container)} {
		_ = json.Unmarshal([]byte("{}"), v)
	}
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	return r
}
