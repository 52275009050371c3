// SPDX-License-Identifier: Apache-2.0

//go:build linux

package drivertest

// evasion is a way to execute what is not listed, as lines of shell.
type evasion struct{ what, lines string }

// mayFail are those that not every kernel has, or that take luck, where nothing is
// listed.
var mayFail = []string{"a copy without a name", "a link that changes", "a name that changes", "in a user namespace"}

// evasions print what id prints, or the canary, if they get through. sh, cat, cp, ln,
// chmod, rm and python3 are listed; $L is their loader, /data a read-write mount, in
// it the scripts script and interpreted, which are not.
func evasions() []evasion {
	return []evasion{
		{"another program", "id"},
		{"by its path", "/usr/bin/id; /bin/id"},
		{"by a way around", "/usr/bin/../bin/id; cd /usr/bin && ./id"},
		{"through /proc", "cd /usr/bin; /proc/self/root/usr/bin/id; /proc/self/cwd/id; /proc/$$/root/bin/id"},
		{"by a script that is not listed", "/data/script"},
		{"by a script's first line", "/data/interpreted"},
		{"by a script of a script", "echo '#!/data/interpreted' > /data/chain; chmod 755 /data/chain; /data/chain"},
		{"by a script for the loader", "(echo \"#!$L /usr/bin/head\"; echo $C) > /data/sl; chmod 755 /data/sl; /data/sl; cp /data/sl /tmp/sl; /tmp/sl"},
		{"by a program of the list", python(`os.execv("/usr/bin/id", ["id"])`)},
		{"by posix_spawn", python(`os.waitpid(os.posix_spawn("/usr/bin/id", ["id"], {}), 0)`)},
		{"by an open file", python(`os.execve(os.open("/usr/bin/id", os.O_PATH), ["id"], {})`)},
		{"by an open file that can be read", python(`os.execve(os.open("/usr/bin/id", os.O_RDONLY), ["id"], {})`)},
		{"by a name of an open file", "exec 9< /usr/bin/id; /proc/self/fd/9; /dev/fd/9"},
		{"beside an open directory", python(`
d = os.open("/usr/bin", os.O_PATH)
libc.syscall(322 if os.uname().machine == "x86_64" else 281, d, b"id", (ctypes.c_char_p * 2)(b"id", None), None, 0)`)},
		{"by its loader", "$L /usr/bin/id; exec $L /bin/id"},
		{"by its loader, told so", "$L --argv0 cat --inhibit-cache /usr/bin/id"},
		{"by its loader, copied", "cp $L /tmp/l; /tmp/l /usr/bin/id; /tmp/l /bin/cat /data/script"},
		{"a copy in /tmp", "cat /usr/bin/id > /tmp/id; chmod +x /tmp/id; /tmp/id; cp /bin/cat /tmp/c1; " + copied("/tmp/c1")},
		{"a copy in the home directory", "cp /bin/cat $HOME/c; " + copied("$HOME/c")},
		{"a copy in /dev/shm", "cp /bin/cat /dev/shm/c; " + copied("/dev/shm/c")},
		{"a copy in a mount", "cp /bin/cat /data/c; " + copied("/data/c")},
		{"a copy in PATH", "cp /bin/cat /tmp/own; chmod 755 /tmp/own; PATH=/tmp:$PATH; echo $C | own"},
		{"by a symbolic link", "ln -s /usr/bin/id /tmp/cat; /tmp/cat; ln -s /usr/bin /tmp/bin; /tmp/bin/id"},
		{"by a hard link", "ln /usr/bin/id /tmp/h1; /tmp/h1; ln /data/script /data/h2; /data/h2"},
		{"a copy without a name", python(`
fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o755)
os.write(fd, open("/bin/cat", "rb").read())
again = os.open("/proc/self/fd/%d" % fd, os.O_RDONLY)
os.close(fd)
run(again)`)},
		{"a copy that was removed", "cp /bin/cat /tmp/gone; " + python(`
fd = os.open("/tmp/gone", os.O_RDONLY)
os.unlink("/tmp/gone")
run(fd)`)},
		{"out of memory", python(`
fd = os.memfd_create("x", 0)
os.write(fd, open("/bin/cat", "rb").read())
run(fd)`)},
		{"out of memory, by a name", python(`
fd = os.memfd_create("/usr/bin/cat", 0)
os.write(fd, open("/bin/cat", "rb").read())
os.set_inheritable(fd, True)
os.dup2(os.open("/data/script", os.O_RDONLY), 0)
os.spawnv(os.P_WAIT, "/proc/self/fd/%d" % fd, ["cat"])
os.spawnv(os.P_WAIT, os.environ["L"], ["cat", "/proc/self/fd/%d" % fd])`)},
		{"a library out of /tmp", library("/tmp/")},
		{"a library out of a mount", library("/data/")},
		{"a library before all others", "cp $M /tmp/pre.so; LD_PRELOAD=/tmp/pre.so cat /proc/self/maps > /tmp/maps; " +
			python(`print([os.environ["C"] for l in open("/tmp/maps") if "pre.so" in l and "x" in l.split()[1]])`)},
		{"code mapped from scratch", mapped("/tmp/code")},
		{"code mapped from a mount", mapped("/data/code")},
		{"code mapped from shared memory", mapped("/dev/shm/code")},
		{"in a user namespace", python(`
CLONE_NEWUSER, CLONE_NEWNS, MS_BIND = 0x10000000, 0x20000, 0x1000
libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
libc.mount(b"/usr/bin/id", b"/usr/bin/cat", None, MS_BIND, None)
libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)
os.spawnv(os.P_WAIT, "/usr/bin/cat", ["id"])
os.mkdir("/tmp/bound")
libc.mount(b"/usr/bin", b"/tmp/bound", None, MS_BIND, None)
os.spawnv(os.P_WAIT, "/tmp/bound/id", ["id"])`)},
		{"in another root", python(`
libc.chroot(b"/usr")
os.spawnv(os.P_WAIT, "/bin/id", ["id"])`)},
		{"a link that changes", python(`
flip = os.fork()
while flip == 0:
    for to in "/usr/bin/id", "/usr/bin/cat":
        os.symlink(to, "/tmp/flip.new")
        os.rename("/tmp/flip.new", "/tmp/flip")
null = os.open("/dev/null", os.O_RDONLY)
for _ in range(60):
    try:
        os.waitpid(os.posix_spawn("/tmp/flip", ["x"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, null, 0)]), 0)
    except OSError:
        pass
os.kill(flip, 9)`)},
		{"a name that changes", python(`
import threading
name = ctypes.create_string_buffer(b"/usr/bin/cat", 64)
argv = (ctypes.c_char_p * 2)(b"x", None)
def flip():
    while not done:
        for to in b"/usr/bin/id\0", b"/usr/bin/cat":
            ctypes.memmove(name, to, 12)
done = False
threading.Thread(target=flip).start()
null = os.open("/dev/null", os.O_RDONLY)
os.dup2(null, 0)
pid = ctypes.c_int()
for _ in range(60):
    if libc.posix_spawn(ctypes.byref(pid), name, None, None, argv, None) == 0:
        os.waitpid(pid.value, 0)
done = True`)},
	}
}

// python is a program of Python's that knows libc, and run, which executes a copy of
// cat and has it print the canary.
func python(program string) string {
	return `python3 -I -S - << 'END'
import os, sys
try:
    import ctypes
    libc = ctypes.CDLL(None)
except ImportError:
    libc = None
def run(fd):
    os.dup2(os.open("/data/script", os.O_RDONLY), 0)
    os.execve(fd, ["cat"], {})
` + program + `
END
`
}

// copied tries a copy of cat, by itself and by its loader.
func copied(name string) string {
	return "chmod 755 " + name + "; echo $C | " + name + "; echo $C | $L " + name
}

// library maps a copy of a library in dir.
func library(dir string) string {
	return "cp $M " + dir + "lib.so; " + python(`
ctypes.CDLL("`+dir+`lib.so")
print(os.environ["C"])`)
}

// mapped maps a file as code: at once, and as data that becomes code.
func mapped(name string) string {
	return python(`
import mmap
fd = os.open("` + name + `", os.O_CREAT | os.O_RDWR, 0o755)
os.ftruncate(fd, 4096)
for flags in mmap.MAP_PRIVATE, mmap.MAP_SHARED:
    try:
        mmap.mmap(fd, 4096, flags, mmap.PROT_READ | mmap.PROT_EXEC)
        print(os.environ["C"])
    except OSError:
        pass
    m = mmap.mmap(fd, 4096, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    if libc.mprotect(ctypes.c_void_p(at), 4096, mmap.PROT_READ | mmap.PROT_EXEC) == 0:
        print(os.environ["C"])`)
}
