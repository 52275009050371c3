// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"unix:///var/run/docker.sock": "unix:///var/run/docker.sock",
		"unix:///run//x/../d.sock":    "unix:///run/d.sock",
		"tcp://127.0.0.1:2375":        "tcp://127.0.0.1:2375",
		"tcp://[::1]:2376":            "tcp://[::1]:2376",
		"unix://relative.sock":        "",
		"/var/run/docker.sock":        "",
		"ssh://user@host":             "",
		"npipe:////./pipe/docker":     "",
		"tcp://host":                  "",
		"tcp://host:1/v1.41":          "",
		"tcp://user:secret@host:1":    "",
		"http://host:1":               "",
		"":                            "",
	} {
		a, err := parseAddress(in)
		if want == "" {
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("%q: %v, %v; want an error with a hint", in, a, err)
			}
			continue
		}
		if err != nil || a.String() != want || a.local() != strings.HasPrefix(want, "unix:") {
			t.Errorf("%q: %v, %v", in, a, err)
		}
	}
}

// Root's sandboxes are not made by an engine that a user's environment names.
func TestUsualSockets(t *testing.T) {
	env := map[string]string{"HOME": "/home/eve", "XDG_RUNTIME_DIR": "/run/user/1"}
	get := func(name string) string { return env[name] }
	if got := usualSockets(get, 0); !slices.Equal(got, []string{"/var/run/docker.sock", "/run/podman/podman.sock"}) {
		t.Errorf("root asks %q", got)
	}
	user := usualSockets(get, 1)
	for _, want := range []string{"/var/run/docker.sock", "/home/eve/.docker/run/docker.sock", "/run/user/1/docker.sock", "/run/user/1/podman/podman.sock"} {
		if !slices.Contains(user, want) {
			t.Errorf("a user does not ask %s", want)
		}
	}
	env = map[string]string{"HOME": "here", "XDG_RUNTIME_DIR": "."}
	if got := usualSockets(get, 1); len(got) != 2 {
		t.Errorf("relative directories are asked: %q", got)
	}
}

func TestVersions(t *testing.T) {
	for _, s := range []string{"", "1", "1.", "a.b", "-1.2", "1.41.2"} {
		if isVersion(s) {
			t.Errorf("%q is a version", s)
		}
	}
	if !older("1.9", "1.41") || older("1.41", "1.41") || older("2.0", "1.51") || !older("1.43", "1.44") {
		t.Error("versions are compared wrongly")
	}
}
