// SPDX-License-Identifier: Apache-2.0

package client

// ReadEvent is for tests.
var ReadEvent = readEvent
