// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-run/caisson/sandbox/drivertest"
)

// book keeps what a level was seen to do by one setting, over many runs: a slow
// machine may be switched off in between. It is about one test binary in one guest;
// of another one it knows nothing.
type book struct {
	drivertest.Column
	file *os.File
	size int64  // when it was opened
	rest string // of what came, what is no whole line yet
}

// openBook opens the book of what g runs.
func openBook(g *vm, level string, as setting) (*book, error) {
	sum := sha256.New()
	program, err := os.Open(g.job[level+".test"])
	if err != nil {
		return nil, err
	}
	defer program.Close()
	if _, err := io.Copy(sum, program); err != nil {
		return nil, err
	}
	dir := filepath.Join(g.img.dir, "seen")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return readBook(filepath.Join(dir, fmt.Sprintf("%s-%s-%x", level, as, sum.Sum(nil)[:6])))
}

func readBook(path string) (_ *book, err error) {
	b := new(book)
	if b.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(b.file)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	// The last line is not whole where we were killed: then it was not seen.
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	b.size = int64(len(whole))
	if err := b.forget(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	for line := range bytes.Lines(whole) {
		if _, err := b.Add(string(line)); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", path, err), b.Close())
		}
	}
	return b, nil
}

func (b *book) path() string { return b.file.Name() }
func (b *book) Close() error { return b.file.Close() }

// Write takes what a suite prints, keeps each promise as it is seen, and shows what
// has failed: nothing here takes as long.
func (b *book) Write(p []byte) (int, error) {
	b.rest += string(p)
	for {
		line, rest, whole := strings.Cut(b.rest, "\n")
		if !whole {
			return len(p), nil
		}
		b.rest = rest
		if added, err := b.Add(line); err != nil {
			return 0, err
		} else if added {
			if _, err := b.file.WriteString(line + "\n"); err != nil {
				return 0, err
			}
			cell := b.Promises[len(b.Promises)-1]
			fmt.Printf("    %s: %s\n", cell.Name, cell.State)
		}
		if strings.Contains(line, "--- FAIL") {
			fmt.Println(line)
		}
	}
}

// forget takes back what was seen since the book was opened.
func (b *book) forget() error { return b.file.Truncate(b.size) }
