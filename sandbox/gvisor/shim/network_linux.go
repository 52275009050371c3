// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"github.com/caisson-run/caisson/sandbox/gvisor/protocol"
)

// startConnected starts the first process in a kernel that has a wire beside
// its loopback.
//
// container.Start would tell the kernel about the loopback alone, in the same
// place, so the two calls that it comes to are made here: which interfaces
// there are, and start. gVisor's own network stays "none": the kernel's process
// is in an empty network namespace and its filter lets it make no socket.
func (w *instance) startConnected(*config.Config) error {
	n := w.order.Network
	nic, err := w.nic(n)
	if err != nil {
		return err
	}
	args, err := networkArgs(n, nic)
	if err != nil {
		return fmt.Errorf("the wire: %w", err)
	}
	defer args.Files[0].Close()
	conn, err := w.control()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Call(boot.ContMgrSetNetworkArgs, args, nil); err != nil {
		return fmt.Errorf("the wire: %w", err)
	}
	return conn.Call(boot.ContMgrRootContainerStart, &w.order.ID, nil)
}

// nic is the sandbox's end of the wire.
func (w *instance) nic(n *protocol.Network) (*os.File, error) {
	if n.NIC < protocol.FirstFile || n.NIC >= len(w.files) {
		return nil, errors.New("the wire did not come with the order")
	}
	return w.files[n.NIC], nil
}

// control connects to the kernel's socket. Its path may be longer than an
// address of a socket, so it is named by descriptor.
func (w *instance) control() (*urpc.Client, error) {
	fd, err := unix.Open(w.box.Sandbox.GetControlSocketPath(), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("the kernel's socket: %w", err)
	}
	defer unix.Close(fd)
	return client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// networkArgs describes the wire: one interface, no header below IP, and no
// checksums, because nothing but the two ends touches a packet.
func networkArgs(n *protocol.Network, nic *os.File) (*boot.CreateLinksAndRoutesArgs, error) {
	address, err := netip.ParseAddr(n.Address)
	if err != nil {
		return nil, err
	}
	gateway, err := netip.ParseAddr(n.Gateway)
	if err != nil {
		return nil, err
	}
	const name = "eth0"
	everywhere := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	return &boot.CreateLinksAndRoutesArgs{
		FilePayload:   urpc.FilePayload{Files: []*os.File{nic}},
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name: name, MTU: n.MTU, NumChannels: 1,
			Addresses:         []boot.IPWithPrefix{{Address: address.AsSlice(), PrefixLen: address.BitLen()}},
			TXChecksumOffload: true, RXChecksumOffload: true,
		}},
		Defaultv4Gateway: boot.DefaultRoute{Name: name, Route: boot.Route{Destination: everywhere, Gateway: gateway.AsSlice()}},
	}, nil
}
