// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openBelow opens what is at rel below dir, through no link and no mount. A link
// at its end is opened itself.
func openBelow(dir *os.File, rel string) (*os.File, error) {
	fd, err := unix.Openat2(int(dir.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// readLink says where a link leads that openBelow opened.
func readLink(f *os.File) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Reopen opens a file for reading that was opened without.
func Reopen(f *os.File) (*os.File, error) {
	return os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// readBelow opens a regular file below dir for reading, through no link. The maker of
// the tree may have put a pipe there, which would be waited for.
func readBelow(dir *os.File, rel string) (*os.File, error) {
	f, err := openBelow(dir, rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("/"+rel+" is no regular file"))
	}
	return Reopen(f)
}
