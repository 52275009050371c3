// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// account is a line of a passwd file.
type account struct {
	name     string
	uid, gid int
	home     string // absolute and clean, or empty
}

const (
	maxAccounts = 10_000
	maxID       = 1<<31 - 2
)

// accounts reads a passwd file of an image; lines that are none are skipped, as
// the C library does.
func accounts(text []byte) []account {
	var out []account
	for f := range records(text) {
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err1 == nil && err2 == nil && uid >= 0 && gid >= 0 && uid <= maxID && gid <= maxID && plainWord(f[0], "_-.", 64) {
			a := account{name: f[0], uid: uid, gid: gid}
			if len(f) > 5 && path.IsAbs(f[5]) && plainWord(strings.ReplaceAll(f[5], "/", ""), "_-.", 4000) {
				a.home = path.Clean(f[5])
			}
			out = append(out, a)
		}
	}
	return out
}

// groups reads a group file.
func groups(text []byte) map[string]int {
	out := map[string]int{}
	for f := range records(text) {
		if gid, err := strconv.Atoi(f[2]); err == nil && gid >= 0 && gid <= maxID {
			if _, have := out[f[0]]; !have {
				out[f[0]] = gid
			}
		}
	}
	return out
}

// records are the lines of a colon-separated file, at least 4 fields each.
func records(text []byte) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(text))
		for n := 0; lines.Scan() && n < maxAccounts; n++ {
			if f := strings.Split(lines.Text(), ":"); len(f) >= 4 && f[0] != "" && !yield(f) {
				return
			}
		}
	}
}

// byID finds an account; the first one counts.
func byID(list []account, uid int) (account, bool) {
	for _, a := range list {
		if a.uid == uid {
			return a, true
		}
	}
	return account{}, false
}

// byName finds an account; the first one counts.
func byName(list []account, name string) (account, bool) {
	for _, a := range list {
		if a.name == name {
			return a, true
		}
	}
	return account{}, false
}

// whoRuns finds the account behind an image's USER: NAME or UID, and maybe
// :GROUP or :GID. Root, or nothing, is uid 1000. Where the image does not know
// the uid, add is the line that its passwd file lacks.
func whoRuns(user string, passwd, group []byte) (u sandbox.User, add string, err error) {
	list := accounts(passwd)
	who, grp, hasGroup := strings.Cut(user, ":")
	a, known := byName(list, who)
	if !known {
		if id, err := strconv.Atoi(who); err == nil && id >= 0 && id <= maxID {
			if a, known = byID(list, id); !known {
				a = account{uid: id, gid: id}
			}
		} else if who != "" && who != "root" {
			return u, "", badImage("its user %.40q is not in its /etc/passwd", who)
		}
	}
	if hasGroup && a.uid != 0 {
		gid, ok := groups(group)[grp]
		if !ok {
			n, err := strconv.Atoi(grp)
			if err != nil || n < 0 || n > maxID {
				return u, "", badImage("its group %.40q is not in its /etc/group", grp)
			}
			gid = n
		}
		a.gid = gid
	}
	if a.uid == 0 {
		def := sandbox.DefaultUser()
		if a, known = byID(list, def.UID); !known {
			a = account{uid: def.UID, gid: def.GID}
		}
	}
	u = sandbox.User{UID: a.uid, GID: a.gid, Name: a.name, Home: sandbox.DefaultUser().Home}
	if u.Name == "" {
		u.Name = freeName(list)
		add = fmt.Sprintf("%s:x:%d:%d:%s:%s:/bin/sh\n", u.Name, u.UID, u.GID, u.Name, u.Home)
	}
	return u, add, nil
}

// stepUser finds whom a step of a build runs as: the account itself, root too, at home
// where the image has it at home.
func stepUser(user string, passwd, group []byte) (sandbox.User, error) {
	list := accounts(passwd)
	who, grp, hasGroup := strings.Cut(user, ":")
	a, known := byName(list, who)
	if id, err := strconv.Atoi(who); !known && err == nil && id >= 0 && id <= maxID {
		if a, known = byID(list, id); !known {
			a, known = account{name: who, uid: id, gid: id}, true
		}
	}
	if !known {
		return sandbox.User{}, &sandbox.Error{Op: "user " + sandbox.Quoted(sandbox.Clip(who, 40)), Kind: sandbox.ErrInvalid, Problem: "it is not in /etc/passwd", Hint: "make it in a step before: RUN useradd NAME"}
	}
	if hasGroup {
		gid, ok := groups(group)[grp]
		if n, err := strconv.Atoi(grp); !ok && err == nil && n >= 0 && n <= maxID {
			gid, ok = n, true
		}
		if !ok {
			return sandbox.User{}, &sandbox.Error{Op: "group " + sandbox.Quoted(sandbox.Clip(grp, 40)), Kind: sandbox.ErrInvalid, Problem: "it is not in /etc/group", Hint: "make it in a step before: RUN groupadd NAME"}
		}
		a.gid = gid
	}
	return sandbox.User{UID: a.uid, GID: a.gid, Name: a.name, Home: cmp.Or(a.home, "/")}, nil
}

// freeName is a name that the image does not have: user, user1, ….
func freeName(list []account) string {
	name := sandbox.DefaultUser().Name
	for i := 1; ; i++ {
		if _, taken := byName(list, name); !taken {
			return name
		}
		name = sandbox.DefaultUser().Name + strconv.Itoa(i)
	}
}

// badImage is the error for an image that cannot be run as it is.
func badImage(format string, args ...any) error {
	return &sandbox.Error{Op: "unpack image", Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf(format, args...), Hint: "use another image, or mend it and build it again"}
}
