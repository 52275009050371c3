// SPDX-License-Identifier: Apache-2.0

package shelf

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stampName is the file beside the kept programs that says which programs were looked
// after (engine.InPieces), as which files, and in which boot: the last ones, since more
// than one may use the directory in turns.
const (
	stampName = ".pieces"
	stamps    = 8
)

// LookAfter says whether program is to be looked after, for the first time since the
// kernel was started, and notes that it is.
func LookAfter(runs string, program *os.File) (first bool, err error) {
	stamp, err := stampOf(program)
	if err != nil {
		return false, err
	}
	name := runs + "/" + stampName
	was := readStamps(name)
	if slices.Contains(was, stamp) {
		return false, nil
	}
	return true, writeStamps(name, append(was[max(0, len(was)-stamps+1):], stamp))
}

// LookedAfter says whether this process's own program was, for who has not judged that
// state directory yet: nothing but speed hangs on it.
func LookedAfter(state string) bool {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	defer self.Close()
	stamp, err := stampOf(self)
	return err == nil && strings.HasPrefix(state, "/") && slices.Contains(readStamps(state+"/"+runs+"/"+stampName), stamp)
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
	nanos := strconv.FormatInt(1e9+st.Ctim.Nsec, 10)[1:]
	return string(Boot()) + "/" + strconv.FormatUint(st.Dev, 10) + ":" + strconv.FormatUint(st.Ino, 10) + "/" + strconv.FormatInt(st.Size, 10) +
		"/" + strconv.FormatInt(st.Ctim.Sec, 10) + "." + nanos, nil
}
