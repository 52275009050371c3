// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"context"
	"io"
	"io/fs"

	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session/persistent"
)

// Files are the files of a [Sandbox], with the rights of its own user. Paths are inside, and
// what is relative begins at that user's home. Each change and each transfer is a call: the
// policy decides it (ErrDenied), and it is recorded. What is not there is ErrNotFound.
type Files struct{ files *persistent.Files }

// FileInfo describes a file of a sandbox; see [sandbox.FileInfo].
type FileInfo = sandbox.FileInfo

// Files are the sandbox's files.
func (s *Sandbox) Files() *Files { return &Files{s.handle.Files(frontend, "")} }

// Read begins to read a file. The caller closes it; ctx bounds the transfer.
func (f *Files) Read(ctx context.Context, path string) (io.ReadCloser, error) {
	d, err := f.files.Read(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Write writes a file from r, and the directories above it. A mode of 0 leaves it as it is,
// or is 0644.
func (f *Files) Write(ctx context.Context, path string, r io.Reader, mode fs.FileMode) error {
	_, err := f.files.Write(ctx, path, r, sandbox.WriteOptions{Mode: mode.Perm()})
	return err
}

// Stat describes a file or directory.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return f.files.Stat(ctx, path)
}

// List lists a directory, and what is below it down to depth levels; 1 is the directory
// alone.
func (f *Files) List(ctx context.Context, path string, depth int) ([]FileInfo, error) {
	return f.files.List(ctx, path, max(depth, 1))
}

// Mkdir makes a directory and those above it. One that exists is ErrConflict.
func (f *Files) Mkdir(ctx context.Context, path string) error {
	_, err := f.files.MakeDir(ctx, path)
	return err
}

// Rename gives a file or directory another path, and makes the directories above that.
func (f *Files) Rename(ctx context.Context, from, to string) error {
	_, err := f.files.Move(ctx, from, to)
	return err
}

// Remove removes a file, or a directory with all that is in it. What is not there is no
// error.
func (f *Files) Remove(ctx context.Context, path string) error { return f.files.Remove(ctx, path) }
