// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package build

const nonblock = 0
