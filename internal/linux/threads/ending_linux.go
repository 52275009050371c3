// SPDX-License-Identifier: Apache-2.0

package threads

import (
	"runtime"
	"syscall"
)

// Ending calls f, and waits for it, in a thread that ends afterwards: in which f may be
// in other namespaces, or another user. It is never the process's first one. That cannot
// end (Go keeps it for ever where its goroutine ends locked to it), and others know the
// process by it (/proc/self, proc(5)).
func Ending(f func() error) error {
	done := make(chan error, 1)
	Lesser(func() (release bool) {
		done <- f()
		return false
	})
	return <-done
}

// Lesser begins f, locked to a thread that is not the process's first. When f does not
// release it, it ends.
func Lesser(f func() (release bool)) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			if f() {
				runtime.UnlockOSThread()
			}
			return
		}
		// While this goroutine holds the first thread, no other gets it.
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread()
			if f() {
				runtime.UnlockOSThread()
			}
		}()
		<-done
		runtime.UnlockOSThread()
	}()
}
