// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/caisson-run/caisson/sandbox"
)

// machineID is the same in every root, so that it tells nothing about the
// host and cannot tell two sandboxes apart; persistent ones have their own over it. All zeros would be taken for
// "not yet set" by what reads it.
const machineID = "ca15500000000000000000000000c0de"

// layout are the directories that every skeleton has, whatever is mounted on
// them later, besides the vacant ones.
var layout = []string{
	"/dev", "/etc", "/etc/apt/apt.conf.d", "/home", "/home/user", "/opt", "/proc", "/root", "/run", "/run/lock",
	"/sys", "/tmp", "/usr", "/var", "/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp",
}

// vacant are directories of every skeleton that are there for what is mounted on
// them: the targets that people use most. They cost nothing and save a skeleton of
// their own. A file that is mounted on one takes its place.
var vacant = []string{
	"/app", "/code", "/data", "/input", "/media", "/mnt", "/output", "/project", "/repo", "/src", "/srv", "/work", "/workspace",
}

// layoutLinks are the links that every skeleton has.
var layoutLinks = map[string]string{
	"/etc/mtab": "../proc/self/mounts",
	"/var/run":  "../run",
	"/var/lock": "../run/lock",
}

// syntheticFiles are the files of /etc that are written and not copied: they
// would name people, the host or its network.
func syntheticFiles(user sandbox.User, hostname, shell string) map[string]string {
	passwd := []string{
		"root:x:0:0:root:/root:" + shell,
		"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin",
		"bin:x:2:2:bin:/bin:/usr/sbin/nologin",
		"sys:x:3:3:sys:/dev:/usr/sbin/nologin",
	}
	group := []string{"root:x:0:", "daemon:x:1:", "bin:x:2:", "sys:x:3:", "adm:x:4:", "tty:x:5:", "disk:x:6:", "users:x:100:"}

	// The default user is always there, the user of this run where it is
	// another one. First come, first served, as getpwuid and getpwnam do.
	taken := map[string]bool{"root": true, "daemon": true, "bin": true, "sys": true, "nobody": true,
		"0": true, "1": true, "2": true, "3": true, "65534": true}
	for _, u := range []sandbox.User{user, sandbox.DefaultUser()} {
		if taken[u.Name] || taken[fmt.Sprint(u.UID)] {
			continue
		}
		taken[u.Name], taken[fmt.Sprint(u.UID)] = true, true
		passwd = append(passwd, fmt.Sprintf("%s:x:%d:%d:%s:%s:%s", u.Name, u.UID, u.GID, u.Name, u.Home, shell))
		group = append(group, fmt.Sprintf("%s:x:%d:", u.Name, u.GID))
	}
	passwd = append(passwd, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin")
	group = append(group, "nogroup:x:65534:")

	lines := func(s ...string) string { return strings.Join(s, "\n") + "\n" }
	return map[string]string{
		"/etc/passwd":   lines(passwd...),
		"/etc/group":    lines(group...),
		"/etc/hostname": lines(hostname),
		"/etc/hosts": lines(
			"127.0.0.1 localhost",
			"127.0.1.1 "+hostname,
			"::1 localhost ip6-localhost ip6-loopback",
		),
		// Without a name server the C library asks 127.0.0.1, where no server
		// answers: a look-up fails at once instead of after a timeout.
		"/etc/resolv.conf":   ResolvConf(netip.Addr{}),
		"/etc/nsswitch.conf": lines("passwd: files", "group: files", "shadow: files", "hosts: files dns", "networks: files", "protocols: files", "services: files", "ethers: files", "rpc: files"),
		"/etc/shells":        lines("/bin/sh", shell),
		"/etc/machine-id":    lines(machineID),
		// PATH and the rest of the environment are given to the program, so a
		// login shell must not set them again.
		"/etc/profile": lines(
			"# The environment is set by caisson.",
			`if [ -n "${BASH_VERSION-}" ] && [ -n "${PS1-}" ] && [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi`,
		),
	}
}

// files are the synthetic files for o.
func (o *HostOptions) files(shell string) map[string]string {
	f := syntheticFiles(o.User, o.Hostname, shell)
	f["/etc/resolv.conf"] = ResolvConf(o.NameServer)
	f["/etc/apt/apt.conf.d/caisson"] = aptConf
	return f
}

// aptConf ends every apt command with its text: apt has no other word for a file that
// it is told to read first and is not there. Without it apt-get asks "are you root?".
const aptConf = "#include \"/usr is this host's, and read-only here: apt-get works in an image " +
	"(caisson run --image debian:13 --root --allow preset:apt)\";\n"

// ResolvConf is the text of a resolv.conf that names one server, or none when
// it is not valid.
func ResolvConf(server netip.Addr) string {
	if !server.IsValid() {
		return "# no name server\noptions timeout:1 attempts:1\n"
	}
	return "nameserver " + server.String() + "\n"
}

// withDefaults fills what the caller left out and refuses what cannot be
// written into the files above without changing their meaning.
func (o HostOptions) withDefaults() (HostOptions, error) {
	if o.User == (sandbox.User{}) {
		o.User = sandbox.DefaultUser()
	}
	if o.Hostname == "" {
		o.Hostname = "sandbox"
	}
	if o.root == "" {
		o.root = "/"
	}
	const op = "build root filesystem"
	u := o.User
	switch {
	case o.Cache == "":
		return o, sandbox.Errorf(sandbox.ErrInvalid, op, "no cache directory was given")
	case !plainWord(u.Name, "_-", 32):
		return o, sandbox.Errorf(sandbox.ErrInvalid, op, "%q is no user name: it must be 1 to 32 letters, digits, - or _", u.Name)
	case u.UID < 0 || u.GID < 0 || u.UID > 1<<31-2 || u.GID > 1<<31-2:
		return o, sandbox.Errorf(sandbox.ErrInvalid, op, "uid %d and gid %d are not both between 0 and 2147483646", u.UID, u.GID)
	case !plainWord(o.Hostname, ".-", 64):
		return o, sandbox.Errorf(sandbox.ErrInvalid, op, "%q is no host name: it must be 1 to 64 letters, digits, - or .", o.Hostname)
	case strings.Contains(u.Home, ":"):
		return o, sandbox.Errorf(sandbox.ErrInvalid, op, "the home directory %q holds a colon", u.Home)
	}
	return o, checkInside(op, "home directory", u.Home)
}

// plainWord says whether s is 1 to limit letters, digits and bytes of more,
// beginning with a letter or a digit.
func plainWord(s, more string, limit int) bool {
	for i := range len(s) {
		c := s[i]
		alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !alnum && (i == 0 || !strings.Contains(more, string(c))) {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

// checkInside refuses a path inside that is not absolute, clean and plain.
func checkInside(op, what, p string) error {
	bad := func(why string) error {
		return &sandbox.Error{Op: op, Kind: sandbox.ErrInvalid, Problem: fmt.Sprintf("the %s %q %s", what, p, why),
			Hint: "write it as an absolute path without . or .., for example /data"}
	}
	switch {
	case !strings.HasPrefix(p, "/"):
		return bad("is not absolute")
	case path.Clean(p) != p:
		return bad("is not clean: " + fmt.Sprintf("%q", path.Clean(p)) + " is meant")
	case len(p) > 4095:
		return bad("is longer than 4095 bytes")
	}
	for _, part := range strings.Split(p[1:], "/") {
		if len(part) > 255 {
			return bad("has a component of more than 255 bytes")
		}
	}
	for _, r := range p {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return bad("holds a control character or is not UTF-8")
		}
	}
	return nil
}
