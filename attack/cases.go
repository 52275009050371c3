// SPDX-License-Identifier: Apache-2.0

package attack

// Cases are the attacks in the order in which they are reported. F are about
// files, K about processes and the kernel, S about secrets, N about the network,
// V about kept memory, P about what decides calls, L about limits and the end.
func Cases() []Case {
	const (
		hostKernel  = "report it: caisson's sandbox let code reach the host's kernel"
		hostFiles   = "report it: caisson's sandbox let code reach a file that it was not shown"
		workspace   = "report it; until then work on a copy (--workspace DIR:cow) and collect what you need"
		limit       = "caisson doctor says how each limit holds on this host, and the command that mends it"
		inheritance = "report it; until then start caisson with a clean environment and no open descriptors (env -i, systemd-run)"
		images      = "report it; until then unpack images elsewhere, and use --rootfs"
		network     = "report it: a sandbox without a network reached something of the host"
		allowList   = "report it; until then allow no network"
		control     = "report it; until then stop caisson serve"
		secrets     = "report it; until then give sandboxes no secrets"
		memory      = "report it; until then keep no sandboxes ready (--pool 0), and make no copies"
		record      = "report it; until then keep caisson audit head elsewhere, and compare"
	)
	return []Case{
		{"F01", "open /proc/sys/kernel/core_pattern for writing", hostKernel},
		{"F02", "open /proc/sysrq-trigger for writing", hostKernel},
		{"F03", "open uevent_helper, modprobe and release_agent for writing", hostKernel},
		{"F04", "mount control groups in a user namespace (CVE-2022-0492)", hostKernel},
		{"F05", "make and open the host's disks and memory as devices", hostKernel},
		{"F06", "open a host file by its handle (Shocker)", hostFiles},
		{"F07", "have the host follow links when files are collected (CVE-2026-44112)", hostFiles},
		{"F09", "write a read-only file through a hard link or descriptor", hostFiles},
		{"F10", "leave an image's tree while it is unpacked; bring devices and set-user-id programs", images},
		{"F11", "put links where sandboxes mount something into an image (CVE-2025-31133)", images},
		{"F12", "reach a mount's neighbour through .. and by its prefix (CVE-2025-53110)", hostFiles},
		{"F13", "read a hidden file under other spellings (CVE-2025-59944)", workspace},
		{"F14", "read a hidden file after moving what leads to it", workspace},
		{"F15", "make files that the host runs later (CVE-2026-25725)", workspace},
		{"F16", "change git's configuration and hooks", workspace},
		{"F17", "read home folders, accounts and files outside", hostFiles},
		{"F18", "read what tells of the host's kernel", hostKernel},
		{"F19", "leave the root through /proc and descriptors", hostFiles},
		{"F20", "leave links where the host is to write (CVE-2026-46406)", hostFiles},
		{"F21", "remount, unmount and move what is mounted", hostFiles},
		{"F22", "mount an overlay in a user namespace, give files capabilities", workspace},
		{"F23", "rewrite the policy of the next run in a read-write workspace", workspace},
		{"F24", "leave what git, editors and agents run where files are collected, or replace some", workspace},
		{"F25", "make the host wait by a lease on a file that may only be read", hostFiles},
		{"F26", "have git, an editor or an agent on the host run what came into a workspace", workspace},
		{"K01", "have a socket of AF_ALG (CVE-2026-31431)", hostKernel},
		{"K02", "make a system call by int 0x80", hostKernel},
		{"K03", "make a system call by its x32 number", hostKernel},
		{"K04", "have an io_uring", hostKernel},
		{"K05", "talk to netfilter and XFRM", hostKernel},
		{"K06", "have a socket of AF_VSOCK", hostKernel},
		{"K07", "have packet and raw sockets", hostKernel},
		{"K08", "have bpf, perf, userfaultfd, fsopen and fanotify", hostKernel},
		{"K09", "share a keyring with the host", hostKernel},
		{"K10", "have a user namespace", hostKernel},
		{"K11", "read the memory of a host process", hostKernel},
		{"K12", "change the personality, ports and segments", hostKernel},
		{"K13", "have capabilities, or be without no_new_privs", hostKernel},
		{"K14", "become root by a set-user-id program", hostKernel},
		{"K15", "type into the caller's terminal", inheritance},
		{"K16", "send a signal to a host process", hostKernel},
		{"K17", "take a descriptor out of a host process, or be given one at its socket", hostKernel},
		{"K18", "take over the agent inside", "report it: what speaks with the host could be made to lie"},
		{"K19", "find namespaces, users, groups or descriptors shared with the host", hostKernel},
		{"K20", "get past the system call filter", hostKernel},
		{"K21", "take of what the kernel has one pool of: socket filters, encapsulation, flow labels, huge pages, filters of one's own", hostKernel},
		{"K22", "make processes that are caisson's children, which no process waits for (clone with CLONE_PARENT)", hostKernel},
		{"S01", "find caisson's environment in one's own", inheritance},
		{"S02", "find caisson's environment in /proc/*/environ", inheritance},
		{"S03", "find caisson's open descriptors", inheritance},
		{"S04", "find a secret of the sandbox in caisson's records", "report it; until then delete the record: caisson audit prune"},
		{"S05", "have a secret sent without TLS, or to a host that is not its own", secrets},
		{"S06", "use an allowed host with another account's credentials", secrets},
		{"S08", "reach the metadata services of clouds", network},
		{"N01", "connect to services on the host's loopback", network},
		{"N02", "reach the host's loopback under other spellings where the internet is allowed", allowList},
		{"N03", "connect to abstract sockets of the host", network},
		{"N04", "connect to socket files of the host", network},
		{"N05", "reach the host at its own addresses, where engines listen (CVE-2025-9074)", allowList},
		{"N06", "send datagrams around the resolver", allowList},
		{"N07", "tell a name server something in the names that are asked for", allowList},
		{"N08", "reach the host's loopback by an allowed name that leads there", allowList},
		{"N09", "name another host in odd spellings: NUL, %00, userinfo, fragments, zones", allowList},
		{"N10", "name a host that begins or ends as an allowed one does", allowList},
		{"N11", "name another host in a request, or in TLS, than is connected to", allowList},
		{"N12", "connect to addresses of an allowed host whose name was not asked for", allowList},
		{"N13", "go on from an allowed host: other ports, tunnels, upgrades", allowList},
		{"N14", "speak past a proxy: plain TCP, TLS, QUIC", allowList},
		{"N15", "reach anything with an empty allow-list (CVE-2025-66479)", network},
		{"N16", "reach another sandbox, or a daemon without a key: from inside, from a page in a browser", control},
		{"N17", "keep a connection to a host that is not allowed any more", allowList},
		{"N18", "use the network without end: connections, bytes, heads of requests", limit},
		{"N19", "reach more of the host's loopback than the one port that is opened by its name", allowList},
		{"V01", "draw the random numbers of another copy of a sandbox", memory},
		{"V02", "find what another key left in a sandbox that was kept ready", memory},
		{"V03", "have memory gone on with that was changed on the disk", memory},
		{"P12", "write past the record, into it, or change it", record},
		{"L01", "make processes without end", limit},
		{"L02", "take memory without end: anonymous, memfd, /dev/shm, local and internet sockets", limit},
		{"L03", "fill the disk: bytes, holes, files", limit},
		{"L04", "write output without end", limit},
		{"L05", "outlast the wall clock: ignore signals, stop", limit},
		{"L06", "leave a daemon behind", "report it; until then end what is left: caisson doctor"},
		{"L07", "leave one's control group", limit},
		{"L08", "outlive a caisson that is killed", "report it; until then end what is left: caisson doctor"},
		{"L09", "open descriptors without end, and take what is counted by user from others", limit},
		{"L10", "take more of the processors than is allowed", limit},
		{"L11", "fill the disk with a small layer of an image", images},
		{"L12", "write to the disk faster than is allowed", limit},
		{"L13", "keep a quiet neighbour from the processors", limit},
	}
}
