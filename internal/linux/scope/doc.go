// SPDX-License-Identifier: Apache-2.0

// Package scope lets an ordinary user on a systemd host have limits: it asks
// the user's own service manager for a transient scope with Delegate=yes and
// has this process moved into it. The groups of package cgroup are made there.
//
// Nothing is installed and nothing needs root: every logged-in user has such
// a manager, and it delegates the cpu, memory and pids controllers (io only
// where the administrator says so). systemd takes the scope away with its last
// process. The request is one D-Bus message on the user's bus, so that no
// systemd-run and no second start of this program is needed.
package scope
