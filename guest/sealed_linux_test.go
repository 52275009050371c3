// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A make build's agent once was a file that gVisor refused to execute, while
// the tests, which run without it, passed.
func TestSealedIsReadOnlyAndStaysWhatItIs(t *testing.T) {
	f, err := sealed(writing("#!/bin/true\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
		t.Errorf("open with flags %#x (%v), want for reading only", flags, err)
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if want := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE; err != nil || seals&want != want {
		t.Errorf("seals %#x (%v), want %#x", seals, err, want)
	}
	if got, err := io.ReadAll(f); err != nil || string(got) != "#!/bin/true\n" {
		t.Errorf("it holds %q (%v)", got, err)
	}
}

// writing writes a program.
func writing(program string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, program)
		return err
	}
}

// All sandboxes of a process execute one file. They have no offset in common, and
// what one does to it by its name in /proc leaves the next one a program.
func TestSharedIsOneFileForAll(t *testing.T) {
	var s sharedFile
	const program = "#!/bin/true\n"
	open := func() (*os.File, uint64) {
		t.Helper()
		f, err := s.open(writing(program))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f); err != nil || string(got) != program {
			t.Errorf("it holds %q (%v)", got, err)
		}
		return f, st.Ino
	}
	f, first := open()
	if _, second := open(); second != first {
		t.Error("a second file was made")
	}
	if err := unix.Fchmod(int(f.Fd()), 0); err != nil {
		t.Fatal(err)
	}
	open()
}
