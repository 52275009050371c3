// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// maxNames is how much is read of an account database, in bytes: it is the
// image's, or root's inside.
const maxNames = 1 << 20

// names are those of users and groups, read when the first is asked for.
type names struct{ users, groups map[uint32]string }

func newNames() *names { return &names{} }

// user names a user; a number where there is no name.
func (n *names) user(id uint32) string { return named(&n.users, "/etc/passwd", id) }

// group names a group.
func (n *names) group(id uint32) string { return named(&n.groups, "/etc/group", id) }

func named(all *map[uint32]string, file string, id uint32) string {
	if *all == nil {
		*all = map[uint32]string{}
		for p := range accounts(file) {
			if v, err := strconv.ParseUint(p[2], 10, 32); err == nil {
				if _, first := (*all)[uint32(v)]; !first {
					(*all)[uint32(v)] = p[0]
				}
			}
		}
	}
	if name := (*all)[id]; name != "" {
		return strings.ToValidUTF8(name, "\ufffd")
	}
	return strconv.FormatUint(uint64(id), 10)
}

// lookUp finds a user by name in a passwd file.
func lookUp(file, name string) (user, bool) {
	for p := range accounts(file) {
		if p[0] != name || len(p) < 6 {
			continue
		}
		uid, err1 := strconv.ParseUint(p[2], 10, 32)
		gid, err2 := strconv.ParseUint(p[3], 10, 32)
		if err1 == nil && err2 == nil {
			home := p[5]
			if !path.IsAbs(home) {
				home = "/"
			}
			return user{uint32(uid), uint32(gid), name, path.Clean(home)}, true
		}
	}
	return user{}, false
}

// accounts yields the lines of a passwd or group file, split at colons; each
// has a name and an id.
func accounts(file string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, err := openRegular(file, os.O_RDONLY, 0)
		if err != nil {
			return
		}
		defer f.Close()
		for lines := bufio.NewScanner(io.LimitReader(f, maxNames)); lines.Scan(); {
			if p := strings.Split(lines.Text(), ":"); len(p) > 2 && p[0] != "" && !yield(p) {
				return
			}
		}
	}
}
