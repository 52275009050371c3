// SPDX-License-Identifier: Apache-2.0

package prestart

import (
	"os"
	"runtime"
	"unsafe"
)

const machine = 62 // EM_X86_64

// entries returns where the two programs begin in this binary's text.
func entries() (bounds, umount uintptr)

// Bounds returns a program that a half of gVisor is executed through. With the
// rights of root in a new user namespace it takes everything out of its
// bounding set of capabilities but gofer or kernel, a bit for each (it tells
// gofer and sentry apart by argv[0]), and then executes the file next with its own
// arguments and environment.
//
// gVisor would do that in all of its threads, with one stop of the world for
// each of 35 capabilities: 2 ms of processor time in either half. A process
// that is just executed has one thread. CAP_SETPCAP is taken out of the
// permitted set as well, which tells gVisor that nothing is left to be taken
// out; all else stays permitted, by way of the inheritable set, until gVisor
// drops it as always. When anything fails the program ends, and with it the
// making of the sandbox.
func Bounds(gofer, kernel uint64, next string) ([]byte, error) {
	at, _ := entries()
	return elf(machine, code(at), gofer, kernel, next)
}

// Umounter returns a program, as a file without a name, that waits for one
// byte on descriptor 3 and unmounts dir. gVisor would execute the whole binary
// for that, 2.5 ms of processor time.
func Umounter(dir string) (*os.File, error) {
	_, at := entries()
	program, err := elf(machine, code(at), 0, 0, dir)
	if err != nil {
		return nil, err
	}
	return file("caisson-umount", program)
}

// code copies the text of the function that begins at start.
func code(start uintptr) []byte {
	this := runtime.FuncForPC(start)
	end := start
	for f := this; f != nil && f.Entry() == this.Entry(); f = runtime.FuncForPC(end) {
		end++
	}
	// Not a conversion of a number, which may be anything: the text does not move.
	text := *(**byte)(unsafe.Pointer(&start))
	return append([]byte(nil), unsafe.Slice(text, end-start)...)
}
