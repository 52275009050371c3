// SPDX-License-Identifier: Apache-2.0

package sandbox

import "os"

// HostFile is a file of this host that is read to decide a call or to make its sandbox.
// Code that runs must not be able to change it: the next call would have what code wrote.
type HostFile struct {
	Path string   // absolute; empty where no name led to it, as of /dev/stdin
	File *os.File // what was read, open for as long as it counts; nil is what Path names
}
