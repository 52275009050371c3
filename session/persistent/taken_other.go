// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package persistent

import "io/fs"

// taken is what a file takes of the disk, in bytes.
func taken(info fs.FileInfo) int64 { return info.Size() }
