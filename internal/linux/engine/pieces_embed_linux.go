// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/engine/pieces"
	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
)

// stampName is the file beside the kept programs that says which programs were read in
// large pieces, as which files, and in which boot: the last ones, since more than one may
// use the directory in turns.
const (
	stampName = ".pieces"
	stamps    = 8
)

// InPieces has this program, which is about to end, kept in memory in large pieces
// (package pieces), unless that was done since the kernel was started. runs is the
// directory of the run directories. What is against it is no fault: it is as fast as it
// was.
func InPieces(runs string) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	stamp, err := stampOf(self)
	if err != nil {
		return err
	}
	name := filepath.Join(runs, stampName)
	was := readStamps(name)
	if slices.Contains(was, stamp) {
		return nil
	}
	// First, so that runs that end now do not all do it, nor each of them where nothing
	// can be written.
	was = append(was[max(0, len(was)-stamps+1):], stamp)
	if err := writeStamps(name, was); err != nil {
		return err
	}
	if inLargePieces() { // with another state directory somebody has seen to that
		return nil
	}
	program, err := OpenRouter(filepath.Join(runs, "none"))
	if err != nil {
		return err
	}
	defer program.Close()
	return pieces.Start(program, self)
}

// inLargePieces says that this program is executed from large pieces: of 60 MB a run has
// 16 mapped so where it lies in them, and nothing where it does not.
func inLargePieces() bool {
	text, err := os.ReadFile("/proc/self/smaps_rollup") // since Linux 4.14
	if err != nil {
		return false
	}
	_, figure, _ := strings.Cut(string(text), "FilePmdMapped:")
	kib := 0
	_, _ = fmt.Sscan(figure, &kib)
	return kib >= 8<<10
}

// readStamps returns none where they cannot be read.
func readStamps(name string) []string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

func writeStamps(name string, stamps []string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(strings.Join(stamps, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// stampOf names a file as it is, in this boot.
func stampOf(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d:%d/%d/%d.%09d", shelf.Boot(), st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec), nil
}
