// SPDX-License-Identifier: Apache-2.0

package image

// Write is for tests that cannot be in this package.
func (i *Stored) Write(dir string) error { return i.write(dir) }
