// SPDX-License-Identifier: Apache-2.0

//go:build embedengine && lean

package shelf

// Engine and Router are in the other program of caisson's file, which puts them on the
// shelf; this one takes them from there.
var Engine, Router []byte
