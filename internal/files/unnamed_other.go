// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package files

import (
	"errors"
	"os"
)

func unnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func name(*os.File, string) error { return errors.ErrUnsupported }

func unnamedBelow(*os.Root, string, os.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func nameBelow(*os.File, *os.Root, string) error { return errors.ErrUnsupported }

func renameNew(*os.Root, string, string) error { return errors.ErrUnsupported }

func tryLock(*os.File) error { return errors.ErrUnsupported }

func openIdle(*os.Root, string) (*os.File, error) { return nil, errors.ErrUnsupported }

func flush(f *os.File) error { return f.Close() }
