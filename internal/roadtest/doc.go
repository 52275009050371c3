// SPDX-License-Identifier: Apache-2.0

// Package roadtest holds the tests that take the whole road, from a frontend to real
// sandboxes: networks with real clients, a daemon that is killed, sandboxes that
// outlive it. They name every level, as only the library's face and tests may.
package roadtest
