// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// makePackage makes the Debian package of what is tried.
func makePackage(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./internal/tools/pack", "deb", "-version", "v0.0.0-v2guest", "-binary", product, "-out", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make the package: %w\n%s", err, out)
	}
	return filepath.Join(dir, "caisson_0.0.0~v2guest_amd64.deb"), nil
}

// service is an operator's day: the package is installed, its service restarted and
// killed beside a sandbox that counts, another one takes too much memory, and it is stopped
// and removed. The registry's commits want a disk, which the guest's root is not.
const service = `set -eu
fail() { echo "$@" >&2; systemctl status --no-pager --lines=30 caisson caisson-sandboxes >&2 || true; journalctl --no-pager -n 60 >&2 || true; exit 1; }
dpkg --install ./caisson_*.deb >/dev/null
mkdir -p /scratch/service /var/lib/caisson /etc/caisson
mount --bind /scratch/service /var/lib/caisson
echo 'CAISSON_SERVE=--pool 0' >/etc/caisson/serve.env
systemctl daemon-reload
systemctl start caisson
CAISSON_API_KEY=$(runuser -u caisson -- caisson keys create --state /var/lib/caisson --name test)
export CAISSON_API_KEY
up() {
	for i in $(seq 300); do caisson sandbox ls >/dev/null 2>&1 && return; sleep 0.5; done
	fail "it does not answer after $1"
}
up start
id=$(caisson sandbox create --timeout 2h) || fail "no sandbox can be made"
who=$(caisson sandbox exec "$id" -- sh -c 'sh -c "echo \$\$ > ~/who; x=0; while sleep 0.1; do x=\$((x+1)); echo \$x > ~/new; mv ~/new ~/count; done" >/dev/null 2>&1 &
	until [ -e ~/count ]; do sleep 0.1; done; cat ~/who')
main() { systemctl show --property=MainPID --value caisson; }
for how in restart kill restart; do
	was=$(main)
	case $how in
	restart) systemctl restart caisson ;;
	kill) kill -KILL "$was" ;;
	esac
	until [ "$(main)" != 0 ] && [ "$(main)" != "$was" ]; do sleep 0.5; done
	up "$how"
	now=$(caisson sandbox exec "$id" -- sh -c 'a=$(cat ~/count); until [ "$(cat ~/count)" -gt "$a" ]; do sleep 0.1; done; cat ~/who')
	[ "$now" = "$who" ] || fail "after $how the process that counts is $now, it was $who"
	bound=$(find /sys/fs/cgroup/system.slice -path '*/caisson/caisson-sbx*/memory.max' -exec cat {} +)
	case $bound in '' | *max*) fail "after $how its group's memory.max is '$bound'" ;; esac
	echo "$how: it counts on"
done
was=$(main)
fat=$(caisson sandbox create --timeout 2h) || fail "no second sandbox can be made"
caisson sandbox exec "$fat" -- python3 -c "b = bytearray(b'x') * (800 << 20); print('survived')" | grep survived && fail 'a sandbox has more memory than its limit'
until ! caisson sandbox ls | grep -q "$fat"; do sleep 0.5; done
[ "$(main)" = "$was" ] && systemctl is-active --quiet caisson-sandboxes || fail 'a sandbox without memory took its service with it'
caisson sandbox exec "$id" -- sh -c 'a=$(cat ~/count); until [ "$(cat ~/count)" -gt "$a" ]; do sleep 0.1; done'
systemctl stop caisson caisson-sandboxes
! pgrep -x 'caisson.*' || fail 'they were not ended with caisson-sandboxes'
systemctl start caisson
up 'the second start'
caisson sandbox ls | grep -q "$id" && fail 'a sandbox is listed that was ended'
systemctl stop caisson caisson-sandboxes
runuser -u caisson -- env CAISSON_STATE=/var/lib/caisson caisson audit verify
dpkg --purge caisson >/dev/null 2>&1
umount /var/lib/caisson
systemctl daemon-reload
`

// checkService tries the package's units: nothing that runs ends with a restart or with
// a daemon that is killed, on a systemd that has no group below for it either.
func checkService(ctx context.Context, g *vm, w host) error {
	o, err := execIn(ctx, g, w, 15*time.Minute, "sh", "-c", service)
	if err != nil {
		return err
	}
	if o.code != 0 || !bytes.HasPrefix(o.stdout, []byte("restart: it counts on\nkill: it counts on\nrestart: it counts on\n")) {
		return fmt.Errorf("the service failed\n%s", o)
	}
	return nil
}
