// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slot is where a child keeps the result of a system call, a descriptor as a
// rule, for the calls after it. 0 is none.
type slot uint16

const maxSlots = 1024

// step is one system call of a child. It holds numbers only: what they point to
// is kept alive by its script.
type step struct {
	call  uintptr
	arg   [6]uintptr
	slots uint8 // bit i: arg[i] is a slot, not a value
	into  slot
	pass  syscall.Errno // this error is none; passAll: no error is one

	// For what is no system call.
	child  *child
	value  *uint64
	number *int32
	ends   *[2]unix.PollFd
}

// Steps that are no system calls.
const (
	callSame     = ^uintptr(iota) // the uint64 at arg[0] is arg[1]
	callSpawn                     // start the child at arg[0] and wait until it executes its program
	callDefaults                  // every signal's action is the default
	callPut                       // the int32 at arg[0] becomes arg[1]
	callWait                      // sleep until the first of two ends can be read; ESRCH where the second can
)

const passAll = ^syscall.Errno(0)

// script is what one child does, written down before it is made: it shares its
// maker's memory and must neither allocate nor touch the Go runtime.
type script struct {
	steps []step
	what  []string // for each step, for people
	keep  []any    // what the steps point to
	text  []byte   // strings among it, with room for more that never moves
	next  slot
	about string
}

// doing names the steps that follow.
func (s *script) doing(format string, a ...any) {
	if s.about = format; len(a) > 0 {
		s.about = fmt.Sprintf(format, a...)
	}
}

// string keeps a C string.
func (s *script) string(v string) uintptr {
	if cap(s.text)-len(s.text) <= len(v) {
		s.text = make([]byte, 0, max(4096, len(v)+1))
		s.keep = append(s.keep, s.text)
	}
	at := len(s.text)
	s.text = append(append(s.text, v...), 0)
	return uintptr(unsafe.Pointer(&s.text[at]))
}

// open is a slot for a new descriptor.
func (s *script) slot() slot {
	s.next++
	if s.next >= maxSlots {
		panic("a script has too few slots") // maxSources keeps plans below that
	}
	return s.next
}

// call adds a system call. Arguments are integers, slots, strings, and pointers
// to what does not move: Go's heap.
func (s *script) call(nr uintptr, args ...any) *step {
	st := step{call: nr}
	for i, a := range args {
		switch v := a.(type) {
		case int:
			st.arg[i] = uintptr(v)
		case uint32:
			st.arg[i] = uintptr(v)
		case uint64:
			st.arg[i] = uintptr(v)
		case uintptr:
			st.arg[i] = v
		case syscall.Signal:
			st.arg[i] = uintptr(v)
		case slot:
			st.arg[i] = uintptr(v)
			st.slots |= 1 << i
		case string:
			st.arg[i] = s.string(v)
		case nil:
		case pointer:
			s.keep = append(s.keep, v.to)
			st.arg[i] = uintptr(v.at)
		default:
			panic(fmt.Sprintf("an argument is a %T", a))
		}
	}
	s.steps = append(s.steps, st)
	s.what = append(s.what, s.about)
	return &s.steps[len(s.steps)-1]
}

// pointer is an argument that points to something on the heap.
type pointer struct {
	at unsafe.Pointer
	to any
}

func to[T any](v *T) pointer { return pointer{unsafe.Pointer(v), v} }

// save keeps the call's result.
func (st *step) save(in slot) *step { st.into = in; return st }

// or lets one error pass, allow all of them.
func (st *step) or(e syscall.Errno) *step { st.pass = e; return st }

// close closes a slot and lets it be used again where it was the last.
func (s *script) close(f slot) {
	s.call(syscall.SYS_CLOSE, f)
	if f == s.next {
		s.next--
	}
}

// aside is the descriptor by which a child has a file of ours, above those that its
// program finds: there it could be written over, and dup3(2) refuses to put it where
// it is. A caisson that has few files open has one there.
func (s *script) aside(f *os.File) any {
	s.keep = append(s.keep, f)
	fd := int(f.Fd())
	if fd > ownerFD {
		return fd
	}
	to := s.slot()
	s.call(unix.SYS_FCNTL, fd, unix.F_DUPFD_CLOEXEC, ownerFD+1).save(to)
	return to
}

// same fails with ESTALE where the value at p is not want.
func (s *script) same(p *uint64, want uint64) { s.call(callSame, want).value = p }

// put writes a slot to where a system call wants it in memory.
func (s *script) put(p *int32, from slot) { s.call(callPut, uint64(from)).number = p }

// wait sleeps until the first of two descriptors can be read, and fails with ESRCH where
// the second can.
func (s *script) wait(ends *[2]unix.PollFd) { s.call(callWait).ends = ends }

// spawn starts another child.
func (s *script) spawn(c *child) { s.call(callSpawn).child = c }
