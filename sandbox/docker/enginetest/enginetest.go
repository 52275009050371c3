// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package enginetest runs a real engine for tests: Debian's Docker or Podman, on
// a socket of its own, with everything it keeps in one directory and everything
// it starts below one control group. Only tests and the benchmarks import it.
//
// The engine is no child of the tests: they look at what descends from them.
// A shell beside it waits for the end of a pipe that only the tests hold, so
// that the engine is stopped and cleared away however they end.
package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Engine is a running engine.
type Engine struct {
	// Host is its address, as DOCKER_HOST has it.
	Host string

	dir  string
	hold io.Closer // closed: the engine is stopped
}

// ErrNotRoot says that only root can start an engine.
var ErrNotRoot = errors.New("only root can start an engine")

const (
	startLimit = 60 * time.Second
	stopLimit  = 60 * time.Second
)

// keeper starts the engine, waits for the end of its input, and clears up:
// $1 is the directory, $2 the control group, $3 what becomes the engine, by exec, so
// that it is the engine that is killed. What is
// left in directories that engines share with others is removed if it was not
// there before.
const keeper = `
dir=$1 group=$2
shared="/var/run/docker /etc/docker /etc/docker/key.json /var/lib/containers /etc/cni /etc/cni/net.d /dev/shm/libpod_lock"
for d in $shared; do [ -e "$d" ] || fresh="$d $fresh"; done
for d in /sys/fs/cgroup/*/libpod_parent /sys/fs/cgroup/libpod_parent; do [ ! -e "$d" ] || kept=yes; done
eval "$3" >"$dir/log" 2>&1 </dev/null &
engine=$!
( while kill -0 $engine 2>/dev/null; do sleep 0.2; done; : >"$dir/ended" ) </dev/null &
cat >/dev/null
kill $engine 2>/dev/null
wait
cut -d' ' -f5 /proc/self/mountinfo | grep "^$dir/" | sort -r | while read -r m; do umount -l "$m"; done
find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2>/dev/null
[ -n "$kept" ] || find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} + 2>/dev/null
for d in $fresh; do # an inner one comes before what it is in
	case $d in
	*.json | /dev/shm/* | /var/lib/containers) rm -rf "$d" ;;
	*) [ ! -e "$d" ] || find "$d" -depth -type d -empty -delete ;;
	esac
done
rm -rf "$dir"
`

// docker starts Docker's engine.
const docker = `exec dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" --host "unix://$dir/engine.sock" \
	--storage-driver overlay2 --cgroup-parent "/$group" --bridge=none --iptables=false --ip6tables=false \
	--ip-forward=false --ip-masq=false --userland-proxy=false`

// podman starts Podman's, which answers Docker's API. It is told by files where to
// keep what, and asked not to end by itself.
const podman = `
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s"\nrunroot = "%s"\n' "$dir/data" "$dir/run" >"$dir/storage.conf"
printf '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\ntmp_dir = "%s"\n[network]\nnetwork_config_dir = "%s"\n' \
	"$dir/tmp" "$dir/net" >"$dir/containers.conf"
mkdir "$dir/scratch"
exec env TMPDIR="$dir/scratch" CONTAINERS_STORAGE_CONF="$dir/storage.conf" CONTAINERS_CONF="$dir/containers.conf" \
	podman --log-level=warn system service --time 0 "unix://$dir/engine.sock"`

// Start starts Docker's engine and returns when it answers. Stop ends it.
func Start(ctx context.Context) (*Engine, error) {
	return start(ctx, "dockerd", docker, "docker.io")
}

// StartWith is Start with one more OCI runtime, the program at path, by that name. Such
// a runtime may want mounts that it makes to show elsewhere, as they do on hosts with
// systemd: the engine has a mount namespace of its own, where they do.
func StartWith(ctx context.Context, name, path string) (*Engine, error) {
	line := strings.Replace(docker, "exec dockerd", "exec unshare --mount --propagation shared dockerd", 1)
	return start(ctx, "dockerd", fmt.Sprintf("%s --add-runtime '%s=%s'", line, name, path), "docker.io")
}

// StartPodman is Start for Podman.
func StartPodman(ctx context.Context) (*Engine, error) {
	return start(ctx, "podman", podman, "podman")
}

// start starts an engine by a line of shell; program and its Debian package are
// for a host that lacks it.
func start(ctx context.Context, program, line, debian string) (*Engine, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("%w: apt-get install --no-install-recommends %s", err, debian)
	}
	dir, err := os.MkdirTemp("", "caisson-engine-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // ordinary users reach the socket
		return nil, err
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "engine.sock"), dir: dir}
	if err := e.run(line); err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (e *Engine) run(line string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("setsid", "--fork", "sh", "-c", keeper, "engine-keeper", e.dir, filepath.Base(e.dir), line)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}
	if err := cmd.Run(); err != nil {
		return errors.Join(err, w.Close())
	}
	e.hold = w
	return nil
}

// ready waits until the engine answers.
func (e *Engine) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	socket := filepath.Join(e.dir, "engine.sock")
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return os.Chmod(socket, 0o666)
			}
		}
		if _, err := os.Stat(filepath.Join(e.dir, "ended")); err == nil {
			return fmt.Errorf("the engine has ended at once: %s", e.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the engine does not answer: %s", e.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Log is the end of what the engine wrote.
func (e *Engine) Log() string {
	b, err := os.ReadFile(filepath.Join(e.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4<<10):])
}

// Stop stops the engine and returns when nothing of it is left: no file, and no
// process that names its directory.
func (e *Engine) Stop() error {
	err := e.hold.Close()
	for end := time.Now().Add(stopLimit); ; <-time.After(20 * time.Millisecond) {
		left, perr := processes(e.dir)
		if perr != nil {
			return errors.Join(err, perr)
		}
		if _, serr := os.Stat(e.dir); os.IsNotExist(serr) && len(left) == 0 {
			return err
		}
		if time.Now().After(end) {
			return errors.Join(err, fmt.Errorf("%s is still there, with %q: %s", e.dir, left, e.Log()))
		}
	}
}

// processes are the command lines that name dir.
func processes(dir string) (found []string, err error) {
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, file := range list {
		line, err := os.ReadFile(file) // one that has ended meanwhile is none
		if err == nil && bytes.Contains(line, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found, nil
}
