// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// furnish makes a sandbox in which code may be root what programs expect of such
// a machine: a home of root's, a sudo, and a root directory in which everybody may
// make a directory of their own (E2B's agent makes those of uploads anywhere, as
// root; ours has the user's rights). It is all in the sandbox's own layer over the
// root file system, and mounts stay as they are. What cannot be done is left: nothing
// here is a protection.
func (a *Agent) furnish() {
	settle := func(name string, uid, gid uint32, mode os.FileMode) {
		if sameMount("/", name) && os.Lchown(name, int(uid), int(gid)) == nil {
			_ = os.Chmod(name, mode) // after chown, which takes set-id bits off
		}
	}
	settle("/", 0, 0, 0o777|os.ModeSticky)
	_ = os.Mkdir("/root", 0o700)
	settle("/root", 0, 0, 0o700)
	settle("/workspace", a.options.UID, a.options.GID, 0o755)
	dir := a.options.Programs
	scriptAt := filepath.Join(dir, ".sudo.sh")
	stub, err := sudoProgram(runtime.GOARCH, scriptAt)
	if err != nil || dir == "" || os.MkdirAll(dir, 0o755) != nil {
		return
	}
	script := strings.NewReplacer("@NAME@", a.options.Name, "@UID@", fmt.Sprint(a.options.UID), "@GID@", fmt.Sprint(a.options.GID)).Replace(sudoScript)
	_ = os.WriteFile(scriptAt, []byte(script), 0o644)
	at := filepath.Join(dir, "sudo")
	if os.WriteFile(at, stub, 0o755) == nil {
		_ = os.Chmod(at, 0o755|os.ModeSetuid)
	}
}

// sameMount says whether b is no link, and part of the file system that a is.
func sameMount(a, b string) bool {
	var at, bt syscall.Stat_t
	return syscall.Lstat(a, &at) == nil && syscall.Lstat(b, &bt) == nil && at.Dev == bt.Dev && bt.Mode&syscall.S_IFMT != syscall.S_IFLNK
}

// sudoScript is sudo, by the time it is root: everybody may do everything without
// a password, as E2B's template has it. What it takes and does follows sudo(8); the
// variables that stay are those of sudo's own default (env_reset).
const sudoScript = `# sudo, as this sandbox has it: everybody may, without a password.
fail() { echo "sudo: $1" >&2; exit 1; }
who=root keep= login= shell=
while [ $# -gt 0 ]; do
	case $1 in
	--) shift; break ;;
	-n | -S | -H | -B | -P | -b | -A | --non-interactive | --stdin | --set-home | --preserve-groups | --askpass) ;;
	-E | --preserve-env) keep=all ;;
	--preserve-env=*) keep=$keep,${1#*=} ;;
	-u | --user) [ $# -gt 1 ] || fail "option requires an argument -- '$1'"; who=$2; shift ;;
	-u?*) who=${1#-u} ;;
	--user=*) who=${1#*=} ;;
	-p | --prompt | -g | --group | -C | -T | -h | -r | -t) [ $# -gt 1 ] || break; shift ;;
	-i | --login) login=1 ;;
	-s | --shell) shell=1 ;;
	-k | -K | --reset-timestamp | --remove-timestamp) [ $# -gt 1 ] || exit 0 ;;
	-v | --validate) exit 0 ;;
	-l | --list) echo "User @NAME@ may run the following commands: (ALL : ALL) NOPASSWD: ALL"; exit 0 ;;
	-V | --version) echo "sudo of caisson"; exit 0 ;;
	-[nSHEABPb][a-zA-Z]*) rest=${1#-?}; first=${1%"$rest"}; shift; set -- - "$first" "-$rest" "$@" ;;
	-?*) fail "unknown option $1" ;;
	-) ;;
	*=*) break ;;
	*) break ;;
	esac
	shift
done
sets=
case $1 in *=*) sets=1 ;; esac
[ $# -gt 0 ] || [ -n "$login$shell" ] || { echo "usage: sudo [-EHinSs] [-u user] [VAR=value] command" >&2; exit 1; }
entry=
[ ! -r /etc/passwd ] || while IFS=: read -r name x uid gid x home sh; do
	if [ "$name" = "$who" ] || [ "#$uid" = "$who" ]; then entry=1 who=$name; break; fi
done </etc/passwd
[ -n "$entry" ] || { [ "$who" = root ] && uid=0 gid=0 home=/root sh=; } || fail "unknown user $who"
sh=${sh:-/bin/sh}
if [ -n "$login$shell" ]; then
	[ -z "$login" ] || { cd "$home" 2>/dev/null || cd /; }
	if [ -n "$sets" ]; then
		while :; do case $1 in *=*) export "$1"; shift ;; *) break ;; esac; done
	fi
	if [ $# -gt 0 ]; then line="$*"; set -- "$sh" ${login:+-l} -c "$line"; else set -- "$sh" ${login:+-l}; fi
fi
for command do case $command in *=*) ;; *) break ;; esac; done
command -v -- "$command" >/dev/null || fail "$command: command not found"
if [ "$uid" != 0 ]; then
	command -v setpriv >/dev/null || fail "there is no setpriv here to become $who with"
	set -- setpriv --reuid="$uid" --regid="$gid" --clear-groups -- env "$@"
fi
set -- PATH="$PATH" HOME="$home" USER="$who" LOGNAME="$who" SHELL="$sh" SUDO_USER=@NAME@ SUDO_UID=@UID@ SUDO_GID=@GID@ SUDO_COMMAND="$command" "$@"
[ "$keep" = all ] && exec env "$@"
for v in TERM LANG LANGUAGE LC_ALL LC_CTYPE COLORTERM DISPLAY TZ COLUMNS LINES SSL_CERT_FILE CURL_CA_BUNDLE REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS $(IFS=,; echo $keep); do
	case $v in *[!A-Za-z0-9_]* | [0-9]* | '') continue ;; esac
	eval "[ -z \"\${$v+x}\" ]" || eval "set -- \"$v=\$$v\" \"\$@\""
done
exec env -i "$@"
`

// sudoProgram is an ELF file of one segment that takes all ids of root, and
// executes /bin/sh with the script at path and its own arguments. It gets its
// rights from its set-user-id bit, which scripts do not have. See elf(5), and
// syscalls(2) for the numbers.
func sudoProgram(arch, path string) ([]byte, error) {
	const base, header = 0x400000, 64 + 56
	c, ok := sudoCode[arch]
	if !ok {
		return nil, fmt.Errorf("no sudo is written for %s", arch)
	}
	const shell = "/bin/sh\x00"
	code := append([]byte(nil), c.text...)
	code = append(code, shell+path+"\x00"...)
	size := uint64(header + len(code))
	b := append([]byte(nil), 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	le := binary.LittleEndian
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, c.machine)
	b = le.AppendUint32(b, 1)
	for _, n := range []uint64{base + header, 64, 0} { // entry, program headers, sections
		b = le.AppendUint64(b, n)
	}
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{64, 56, 1, 64, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	b = le.AppendUint32(b, 1) // one to load,
	b = le.AppendUint32(b, 5) // to read and execute
	for _, n := range []uint64{0, base, base, size, size, 0x1000} {
		b = le.AppendUint64(b, n)
	}
	return append(b, code...), nil
}

// sudoCode is the text for each processor. In both, argc's place on the stack
// becomes argv[0] and argv[0]'s the script, so that the arguments follow; the
// shell's name and the script's lie right behind the text.
var sudoCode = map[string]struct {
	machine uint16
	text    []byte
}{
	"amd64": {62, []byte{
		0x48, 0x8b, 0x1c, 0x24, // mov (%rsp),%rbx: argc
		0xb8, 116, 0, 0, 0, 0x31, 0xff, 0x31, 0xf6, 0x0f, 0x05, // setgroups(0, 0)
		0xb8, 119, 0, 0, 0, 0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x0f, 0x05, // setresgid(0, 0, 0)
		0xb8, 117, 0, 0, 0, 0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, 0x0f, 0x05, // setresuid(0, 0, 0)
		0x48, 0x85, 0xc0, // test %rax,%rax
		0x75, 0x26, // jne exit
		0x48, 0x8d, 0x54, 0xdc, 0x10, // lea 16(%rsp,%rbx,8),%rdx: envp
		0x48, 0x8d, 0x3d, 0x26, 0, 0, 0, // lea shell(%rip),%rdi
		0x48, 0x89, 0x3c, 0x24, // mov %rdi,(%rsp)
		0x48, 0x8d, 0x05, 0x23, 0, 0, 0, // lea script(%rip),%rax
		0x48, 0x89, 0x44, 0x24, 0x08, // mov %rax,8(%rsp)
		0x48, 0x89, 0xe6, // mov %rsp,%rsi
		0xb8, 59, 0, 0, 0, 0x0f, 0x05, // execve(shell, argv, envp)
		0xbf, 126, 0, 0, 0, // exit: mov $126,%edi
		0xb8, 60, 0, 0, 0, 0x0f, 0x05, // exit(126)
	}},
	"arm64": {183, words(
		0xf94003f3,                                     // ldr x19, [sp]: argc
		0xd2800000, 0xd2800001, 0xd28013e8, 0xd4000001, // setgroups(0, 0)
		0xd2800000, 0xd2800001, 0xd2800002, 0xd28012a8, 0xd4000001, // setresgid(0, 0, 0)
		0xd2800000, 0xd2800001, 0xd2800002, 0xd2801268, 0xd4000001, // setresuid(0, 0, 0)
		0xb5000160,             // cbnz x0, exit
		0x910003f4,             // mov x20, sp
		0x8b130e82, 0x91004042, // add x2, x20, x19, lsl #3; add x2, x2, #16: envp
		0x10000140, 0xf9000280, // adr x0, shell; str x0, [x20]
		0x10000143, 0xf9000683, // adr x3, script; str x3, [x20, #8]
		0xaa1403e1, 0xd2801ba8, 0xd4000001, // execve(shell, argv, envp)
		0xd2800fc0, 0xd2800ba8, 0xd4000001, // exit: exit(126)
	)},
}

// words are instructions of a processor whose instructions have four bytes.
func words(list ...uint32) (b []byte) {
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
