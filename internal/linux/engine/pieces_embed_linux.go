// SPDX-License-Identifier: Apache-2.0

//go:build embedengine

package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/linux/engine/pieces"
	"github.com/caisson-run/caisson/internal/linux/engine/shelf"
)

// stampName is the file beside the kept programs that says when this program was last
// read in large pieces, and as which file.
const stampName = ".pieces"

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
	if was, err := os.ReadFile(name); err == nil && string(was) == stamp {
		return nil
	}
	program, err := OpenRouter(filepath.Join(runs, "none"))
	if err != nil {
		return err
	}
	defer program.Close()
	if err := os.WriteFile(name, []byte(stamp), 0o600); err != nil { // first, so that runs that end now do not all do it
		return err
	}
	return pieces.Start(program, self)
}

// stampOf names a file as it is, in this boot.
func stampOf(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d:%d %d %d.%09d\n", shelf.Boot(), st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec), nil
}
