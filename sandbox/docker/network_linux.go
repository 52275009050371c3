// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/threads"
	"github.com/caisson-run/caisson/internal/linux/tun"
	"github.com/caisson-run/caisson/sandbox"
)

func deviceUsable() (why, remedy string) { return tun.Usable() }

// connect makes the sandbox's network device in the network namespace of the
// container's first process, and gives its descriptor to the router. Whose
// number pid is is asked again when the namespace is held, and it must not be
// the one that caisson is in.
func (p *plan) connect(ctx context.Context, pid int) error {
	n := p.spec.Network
	if n == nil {
		return nil
	}
	unreachable := func(err error) error {
		return &sandbox.Error{Op: "network", Kind: sandbox.ErrUnavailable, Problem: "the container's network cannot be reached", Cause: err}
	}
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return unreachable(err)
	}
	defer namespace.Close()
	if !isHere(ctx, pid, p.request.Entrypoint) {
		return errElsewhere
	}
	info, err := namespace.Stat()
	if err != nil {
		return unreachable(err)
	}
	if own, err := objectAt(ownNetwork); err != nil || own == objectOf(info) {
		return errSharedNetwork(err)
	}
	return threads.Ending(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return unreachable(err)
		}
		address, gateway := n.IPv4()
		device, err := tun.Config{Address: address, Gateway: gateway, MTU: n.MTU}.Make()
		if err != nil {
			return &sandbox.Error{Op: "network", Kind: sandbox.ErrUnavailable, Problem: "the kernel does not let caisson make its device", Cause: err,
				Hint: "caisson doctor tells what this host does not allow and how to mend it"}
		}
		defer device.Close()
		if err := unix.Sendmsg(int(n.NIC.Fd()), []byte{0}, unix.UnixRights(int(device.Fd())), nil, unix.MSG_NOSIGNAL); err != nil {
			return unreachable(err)
		}
		return nil
	})
}
