// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Where nothing can be written, what waits in audit.tail is verified where it lies.
func TestVerifyUnwritable(t *testing.T) {
	for _, how := range []string{"full", "read-only"} {
		for _, tampered := range []string{"", "record", "cut"} {
			dir, _ := recordWithTail(t)
			cmd := helper("verify-unwritable", dir, how, tampered)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			if os.Geteuid() != 0 {
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			}
			if err := cmd.Run(); err != nil {
				t.Errorf("%s, tampered with: %q: %v", how, tampered, err)
			}
		}
	}
}

// verifyUnwritable DIR HOW WHAT verifies a copy of a record on a disk of that kind, with
// the tail changed.
func verifyUnwritable(args []string) error {
	from, how, what := args[0], args[1], args[2]
	dir := filepath.Join(from, "disk")
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), os.Mkdir(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m,mode=0700"))
	if err != nil {
		return err
	}
	for _, name := range []string{dbFile, dbFile + "-wal", headFile, keyFile, tailFile} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if name == tailFile {
			b = tamper(b, what)
		}
		if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0o600)); err != nil {
			return err
		}
	}
	before, err := os.ReadFile(filepath.Join(dir, tailFile))
	if err == nil {
		err = unwritableNow(dir, how)
	}
	if err != nil {
		return err
	}
	l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
	if err != nil {
		return err
	}
	defer l.Close()
	rep, err := l.Verify(ctx)
	after, _ := os.ReadFile(filepath.Join(dir, tailFile))
	switch {
	case err != nil:
		return err
	case !bytes.Equal(before, after):
		return errors.New("the tail was written to")
	case rep.Unwritten == "":
		return fmt.Errorf("it was written: %+v", rep)
	case what == "" && (!rep.OK() || rep.Records != 7 || rep.Waiting != 4 || rep.Head.Count != 7):
		return fmt.Errorf("%+v", rep)
	case what != "" && !slices.ContainsFunc(rep.Findings, func(f Finding) bool { return f.Kind == "tail" }):
		return fmt.Errorf("%+v", rep)
	}
	return nil
}

func tamper(tail []byte, what string) []byte {
	switch what {
	case "record":
		tail[tailStart+200] ^= 1
	case "cut":
		clear(tail[tailStart+len(tail[tailStart:])/2:])
		clear(tail[tailStart+300:])
	}
	return tail
}

func unwritableNow(dir, how string) error {
	if how == "read-only" {
		return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return f.Close()
}
