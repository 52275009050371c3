// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package source

const nonblock = 0
