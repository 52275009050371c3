// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// address is where an engine listens.
type address struct {
	network string // "unix" or "tcp"
	addr    string // a path, or host:port
}

// local says that the engine sees the files that we see: a socket in our file
// system. What is behind tcp may be anywhere.
func (a address) local() bool { return a.network == "unix" }

func (a address) String() string {
	if a.network == "unix" {
		return "unix://" + a.addr
	}
	return a.network + "://" + a.addr
}

// parseAddress reads what DOCKER_HOST may hold.
func parseAddress(s string) (address, error) {
	bad := func(problem, hint string) (address, error) {
		return address{}, &sandbox.Error{Op: "engine " + s, Kind: sandbox.ErrUnsupported, Problem: problem, Hint: hint}
	}
	scheme, rest, found := strings.Cut(s, "://")
	switch {
	case !found:
		return bad("it is no address", "write unix:///path/to/socket or tcp://host:port")
	case scheme == "unix":
		if !filepath.IsAbs(rest) {
			return bad("the socket's path is not absolute", "write unix:///path/to/socket")
		}
		return address{"unix", filepath.Clean(rest)}, nil
	case scheme == "tcp":
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
			return bad("it is not tcp://host:port", "write tcp://host:port")
		}
		return address{"tcp", net.JoinHostPort(u.Hostname(), u.Port())}, nil
	}
	return bad("caisson speaks to engines on unix:// and tcp:// only", "forward the socket, as with ssh -L /tmp/engine.sock:/var/run/docker.sock host, and name it in DOCKER_HOST")
}

// usualSockets are where engines listen by default, Docker's before Podman's.
// Those of an ordinary user are not asked for root: it would have root's
// sandboxes made by the owner of that directory.
func usualSockets(getenv func(string) string, euid int) []string {
	sockets := []string{"/var/run/docker.sock"}
	if euid != 0 {
		if home := getenv("HOME"); filepath.IsAbs(home) {
			sockets = append(sockets, filepath.Join(home, ".docker/run/docker.sock")) // Docker Desktop
		}
		if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
			sockets = append(sockets, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman/podman.sock"))
		}
	}
	return append(sockets, "/run/podman/podman.sock")
}

// findEngine is the engine that DOCKER_HOST names, else the first of the usual
// sockets on which a process listens. No engine is asked anything yet.
func findEngine(host string) (address, error) {
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host != "" {
		return parseAddress(host)
	}
	for _, path := range usualSockets(os.Getenv, os.Geteuid()) {
		if listens(path) {
			return address{"unix", path}, nil
		}
	}
	return address{}, errNoEngine
}

var errNoEngine = &sandbox.Error{
	Op: "find an engine", Kind: sandbox.ErrUnavailable, Problem: "no Docker or Podman engine listens on this host",
	Hint: noEngineRemedy,
}

const noEngineRemedy = "as root: apt-get install docker.io && systemctl start docker; or, without root: systemctl --user start podman.socket"

// listens says whether a connection to a socket is taken.
func listens(path string) bool {
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
