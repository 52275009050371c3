// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// boot names the boot of the host, which what was written without a sync outlives only
// by chance. It is empty where it cannot be told.
var boot = sync.OnceValue(func() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
})

// fingerprint says what the files of the database in a directory look like. That it is
// what it was tells who appends to the tail that nobody wrote there meanwhile but
// caisson, as far as times and sizes tell. When SQLite's log was changed beside its
// content is left out: SQLite gives it to the owner of the database whenever root opens
// it, to read, too, and the next run would have to look at all of it.
func fingerprint(dir string) string {
	var b []byte
	for _, name := range []string{dbFile, dbFile + "-wal"} {
		var st unix.Stat_t
		if err := unix.Lstat(dir+"/"+name, &st); err != nil {
			st = unix.Stat_t{}
		}
		if name != dbFile {
			st.Ctim = unix.Timespec{}
		}
		for _, n := range []int64{int64(st.Ino), st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
	}
	return hex.EncodeToString(sum(b)[:8])
}

// lookAtTail reads the sector of a file, and whether a frame follows it, without a lock:
// what is not there yet has not been acknowledged. Where there is no file it is blank.
func lookAtTail(path string) (says tailHead, more bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return tailHead{}, false, nil
	}
	if err != nil {
		return tailHead{}, false, noFile(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return tailHead{}, false, err
	} else if !info.Mode().IsRegular() {
		return tailHead{}, false, errNoFile
	}
	for try := 0; ; try++ {
		var line []byte
		if line, more, err = readSector(f); err == nil {
			says, err = sectorSays(line)
		}
		// A read may have met another process in the middle of its write.
		if !isDamage(err) || try == 3 {
			return says, more, noFile(err)
		}
	}
}

// errNoFile says that there is something else in the place of audit.tail.
var errNoFile = damagedTail("audit.tail is not a file")

// noFile says what it means that something cannot be opened or read as a file.
func noFile(err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENXIO) {
		return errNoFile
	}
	return err
}

// waits says whether something lies in the tail that the database may not hold, and
// which head it speaks of.
func waits(path string) (waiting bool, says Checkpoint, err error) {
	head, more, err := lookAtTail(path)
	return head.End > tailStart || more, head.Head, err
}

// Appendable says whether OpenTail would serve: a record is there, and nobody has to
// look at its tail first. It asks without a lock.
func Appendable(dir string) bool {
	says, _, err := lookAtTail(dir + "/" + tailFile)
	return err == nil && says.current(dir) && says.End <= mostTail/2
}
