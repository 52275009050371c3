// SPDX-License-Identifier: Apache-2.0

package threads_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/caisson-run/caisson/internal/linux/threads"
)

// The main goroutine stays on the first thread until TestMain lets go of it.
func init() { runtime.LockOSThread() }

var errFirst = errors.New("it was called in the process's first thread")

// fromFirst is what came of calls whose goroutines Go put on the first thread, had they
// let it: the one that it runs next when its own waits.
var fromFirst error

func TestMain(m *testing.M) {
	runtime.UnlockOSThread()
	met := 0
	for range 1000 {
		first := make(chan bool)
		go func() { first <- syscall.Gettid() == os.Getpid() }()
		if <-first {
			met++
		}
		fromFirst = errors.Join(fromFirst, threads.Ending(func() error {
			if syscall.Gettid() == os.Getpid() {
				return errFirst
			}
			return nil
		}))
	}
	if met == 0 {
		fromFirst = errors.New("no goroutine came to the first thread: nothing is tested")
	}
	os.Exit(m.Run())
}

func TestEndingIsNotTheFirst(t *testing.T) {
	if fromFirst != nil {
		t.Error(fromFirst)
	}
}

// What f does to its thread is gone with the thread, whose number is free then.
func TestEnding(t *testing.T) {
	want, thread := errors.New("of f"), 0
	if err := threads.Ending(func() error { thread = syscall.Gettid(); return want }); err != want {
		t.Errorf("got %v", err)
	}
	for { // the goroutine has yet to end
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); errors.Is(err, os.ErrNotExist) {
			return
		}
		runtime.Gosched()
	}
}
