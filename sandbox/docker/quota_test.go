// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/attack"
	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox/docker"
	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// A sandbox takes nothing of what the kernel counts by user, or for the whole
// machine, that another needs: what it has is its own.
func TestQuotas(t *testing.T) {
	for _, v := range []struct {
		name   string
		weaken func(*docker.Driver)
		lacks  string // of what the other gets too little; nothing: the case holds
	}{
		{"as it is", func(*docker.Driver) {}, ""},
		{"one owner of all user namespaces", func(d *docker.Driver) { docker.Weaken(d, oneOwner) }, "inotify instances"},
		{"the engine's terminals", docker.ShareTerminals, "terminals"},
	} {
		t.Run(v.name, func(t *testing.T) {
			d := docker.New(docker.Options{Host: engineHost(t)})
			v.weaken(d)
			for _, f := range attacktest.Run(t, attacktest.Level{Driver: d}, "L09").Cases {
				t.Log(f.Verdict, f.Reason)
				if v.lacks == "" && f.Verdict != attack.Pass {
					t.Error("one sandbox took what another needs")
				}
				if v.lacks != "" && (f.Verdict != attack.Breach || !strings.Contains(f.Reason, v.lacks)) {
					t.Errorf("it is not seen that %s are shared", v.lacks)
				}
			}
		})
	}
}

func TestQuotasAsNobody(t *testing.T) {
	engineHost(t)
	drivertest.AsUser(t, 65534, "TestQuotas")
}

// oneOwner has every sandbox's root be one user outside.
func oneOwner(r *docker.Request) {
	at := slices.Index(r.Entrypoint, "-map") + 1
	ids := strings.Split(r.Entrypoint[at], ":")
	ids[0], ids[2] = "1879048192", "1879048192"
	if os.Geteuid() == 0 {
		ids[1], ids[3] = "1879048193", "1879048193"
	}
	r.Entrypoint[at] = strings.Join(ids, ":")
}
