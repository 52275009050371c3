// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docker_test

import (
	"testing"

	"github.com/caisson-run/caisson/attack/attacktest"
	"github.com/caisson-run/caisson/sandbox/docker"
)

// The escape suite breaches nothing.
func TestAttack(t *testing.T) {
	attacktest.Holds(t, attacktest.Level{Driver: docker.New(docker.Options{Host: engineHost(t)})})
}
