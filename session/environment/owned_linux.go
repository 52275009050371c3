// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownedByUs says why an open file is not the caller's or root's alone; empty is that it
// is. A group that has the user's own name and is its first one is the user.
func ownedByUs(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "whose it is cannot be told"
	}
	return notOurs(st.Uid, st.Gid, st.Mode, uint32(os.Geteuid()), ownGroup)
}

func notOurs(uid, gid, mode, euid uint32, own func(gid uint32) bool) string {
	switch {
	case uid != 0 && uid != euid:
		return fmt.Sprintf("it belongs to uid %d", uid)
	case mode&0o002 != 0:
		return "everybody may write to it"
	case mode&0o020 != 0 && gid != 0 && !own(gid):
		return fmt.Sprintf("group %d may write to it", gid)
	}
	return ""
}

// ownGroup says whether a group is the private one of who runs this.
func ownGroup(gid uint32) bool {
	if gid != uint32(os.Getegid()) {
		return false
	}
	u, err := user.Current()
	if err != nil {
		return false
	}
	g, err := user.LookupGroupId(strconv.Itoa(int(gid)))
	return err == nil && g.Name == u.Username
}
