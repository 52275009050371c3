// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package image

const nonblock = 0
