// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"path/filepath"
)

// units are the target that the guest boots to, and the agent's service. The
// service keeps running when one of its sub-cgroups runs out of memory; that is
// what the tests are about.
var units = map[string]string{
	"v2.target": `[Unit]
Requires=basic.target
Wants=v2guest.service dbus.service systemd-logind.service systemd-user-sessions.service
After=basic.target
AllowIsolate=yes
`,
	"v2guest.service": `[Unit]
After=basic.target dbus.service systemd-logind.service
[Service]
ExecStart=` + agentPath + `
Delegate=yes
KillMode=mixed
OOMPolicy=continue
TasksMax=infinity
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
`,
}

// masked are units that wait for devices that udev, which is not there, would
// announce, or that only cost time. systemd boots three times faster without.
var masked = []string{
	"getty.target", "serial-getty@ttyS0.service", "getty-static.service", "console-getty.service",
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
	"systemd-tmpfiles-clean.timer", "systemd-tmpfiles-setup-dev.service", "systemd-sysctl.service",
	"systemd-random-seed.service", "systemd-update-utmp.service", "systemd-journal-flush.service",
	"systemd-journal-catalog-update.service", "systemd-update-done.service", "systemd-machine-id-commit.service",
	"systemd-firstboot.service", "systemd-sysusers.service", "systemd-remount-fs.service", "systemd-modules-load.service",
	"systemd-binfmt.service", "systemd-hwdb-update.service", "systemd-pstore.service", "systemd-ask-password-console.path",
	"systemd-ask-password-wall.path", "kmod-static-nodes.service", "dev-hugepages.mount", "dev-mqueue.mount",
	"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "sys-fs-fuse-connections.mount",
	"modprobe@configfs.service", "modprobe@dm_mod.service", "modprobe@drm.service", "modprobe@efi_pstore.service",
	"modprobe@fuse.service", "modprobe@loop.service", "proc-sys-fs-binfmt_misc.automount", "remote-fs.target",
}

func writeUnits(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range units {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range masked {
		if err := os.Symlink("/dev/null", filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
