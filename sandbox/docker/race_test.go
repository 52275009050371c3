// SPDX-License-Identifier: Apache-2.0

//go:build linux && race

package docker_test

const raceDetector = true
