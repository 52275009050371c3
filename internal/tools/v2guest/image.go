// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// image is the guest's kernel, initial ramdisk and root filesystem.
type image struct{ dir string }

func (i image) kernel() string { return filepath.Join(i.dir, "vmlinuz") }
func (i image) initrd() string { return filepath.Join(i.dir, "initrd") }
func (i image) root() string   { return filepath.Join(i.dir, "root.erofs") }

// suite is the Debian in the guest: 12, whose systemd (252) knows less than what is
// newer, or who says V2_SUITE=trixie has 13.
var suite = cmp.Or(os.Getenv("V2_SUITE"), "bookworm")

// packages are what is in the guest besides Debian's minimum. The two about
// D-Bus and PAM are what gives a user a service manager of their own.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd",
	"python3", "util-linux", "procps", "iproute2", "uidmap", "kmod",
}

// modules are what the guest needs to find its disks and its port, and what the
// networks of sandboxes are made of; the rest is built into Debian's cloud kernel.
var modules = []string{"virtio_mmio", "virtio_pci", "virtio_blk", "virtio_console", "erofs", "overlay", "ext4", "tun"}

// makeImage returns the image from the cache, or makes it: about a minute, and
// root, for mmdebstrap. Nothing of the host but its packages' tools goes in.
//
// The initial ramdisk holds this very program and the modules to load, so it is
// written each time.
func makeImage(ctx context.Context) (image, error) {
	key := sha256.Sum256([]byte(suite + "\n" + strings.Join(packages, " ") + "\n" + recipe))
	img := image{dir: filepath.Join(".cache", "v2guest", fmt.Sprintf("%s-%x", suite, key[:6]))}
	if _, err := os.Stat(img.root()); errors.Is(err, os.ErrNotExist) {
		if os.Geteuid() != 0 {
			return img, errors.New("the guest's image has to be made once as root (mmdebstrap), or be copied to " + img.dir)
		}
		if err := debootstrap(ctx, img); err != nil {
			return img, fmt.Errorf("make the guest's image: %w", err)
		}
	} else if err != nil {
		return img, err
	}
	return img, writeInitrd(img)
}

// recipe is run with a scratch directory as $1 and the image's as $2. The
// kernel is unpacked, not installed: no ramdisk is made in there.
const recipe = `
set -eu
work=$1 out=$2 suite=$3 packages=$4
exclude=
for d in man doc locale i18n info; do exclude="$exclude --dpkgopt=path-exclude=/usr/share/$d/*"; done
mkdir "$work/deb"
set -f # the stars above are dpkg's
mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" $exclude \
	--aptopt='Acquire::Languages "none"' \
	--customize-hook="cd $work/deb && APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get -q download \$(APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p')" \
	--customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash dev' \
	--customize-hook='echo 6361697373306e763267756573740000 > "$1/etc/machine-id"' \
	--customize-hook='mkdir -p "$1/job" "$1/scratch" "$1/var/lib/systemd/linger" && touch "$1/var/lib/systemd/linger/dev"' \
	"$suite" "$work/root.tar"
set +f
mkdir "$work/root"
tar -C "$work/root" -xf "$work/root.tar"
mkfs.erofs -zlz4 "$work/root.erofs" "$work/root" >/dev/null 2>&1
dpkg-deb -x "$work"/deb/*.deb "$work/kernel"
[ -e "$work/kernel/lib" ] || ln -s usr/lib "$work/kernel/lib" # from Debian 13 on
depmod -b "$work/kernel" "$(ls "$work/kernel/lib/modules")"
cp "$work"/kernel/boot/vmlinuz-* "$out/vmlinuz"
cp -r "$work"/kernel/lib/modules/* "$out/modules"
mv "$work/root.erofs" "$out/root.erofs.new"
mv "$out/root.erofs.new" "$out/root.erofs" # last: its presence says that all is there
`

func debootstrap(ctx context.Context, img image) error {
	work, err := os.MkdirTemp("", "caisson-v2guest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	out, err := filepath.Abs(img.dir)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "v2guest: making the guest's image, about a minute, once")
	cmd := exec.CommandContext(ctx, "bash", "-c", recipe, "recipe", work, out, suite, strings.Join(packages, ","))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}
