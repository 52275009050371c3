// SPDX-License-Identifier: Apache-2.0

package registry

// Seal is what is known of a kept directory when it was written. What is in it is trusted
// where that is so again.
type Seal struct {
	// Memory is the SHA-256, in hex, of what goes on as it was, Files that of the files
	// alone which lie beside it, where there are any.
	Memory string `json:"memory"`
	Files  string `json:"files,omitempty"`
	// Blocks says that they are of what is not zero, by blocks; else they are of all bytes,
	// as versions before did it.
	Blocks bool `json:"blocks,omitempty"`
	// Bytes is what it takes of the disk.
	Bytes int64 `json:"bytes"`
}
