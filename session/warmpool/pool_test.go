// SPDX-License-Identifier: Apache-2.0

package warmpool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/caisson-run/caisson/session/warmpool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thing is what the tests keep ready.
type thing struct {
	kind string
	n    int // which one of all it is
}

// factory makes things, and counts them.
type factory struct {
	mu          sync.Mutex
	made, ended []thing
	dead        []thing
	making, top int           // at a time
	takes       time.Duration // to make one
	fails       error
	failed      []time.Time
	undead      error // of Destroy
}

func (f *factory) make(ctx context.Context, kind string) (thing, error) {
	f.mu.Lock()
	f.making++
	f.top = max(f.top, f.making)
	takes := f.takes
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(takes):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.making--
	if f.fails != nil {
		f.failed = append(f.failed, time.Now())
		return thing{}, f.fails
	}
	t := thing{kind, len(f.made)}
	f.made = append(f.made, t)
	return t, nil
}

func (f *factory) destroy(t thing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.ended, t) {
		panic("it is destroyed twice")
	}
	f.ended = append(f.ended, t)
	return f.undead
}

func (f *factory) alive(t thing) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.Contains(f.dead, t)
}

func (f *factory) count() (made, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made), len(f.ended)
}

type pool = warmpool.Pool[string, thing]

// try runs a test with a pool in a bubble. All that was made is destroyed afterwards.
func try(t *testing.T, change func(*factory, *warmpool.Options[string, thing]), test func(*testing.T, *factory, *pool)) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{takes: time.Second}
		o := warmpool.Options[string, thing]{Make: f.make, Destroy: f.destroy, Alive: f.alive, Ready: 2, Age: time.Hour}
		if change != nil {
			change(f, &o)
		}
		p := warmpool.New(t.Context(), o)
		test(t, f, p)
		if err := p.Close(); !errors.Is(err, f.undead) {
			t.Error(err)
		}
		if made, ended := f.count(); made != ended {
			t.Errorf("%d were made, %d destroyed", made, ended)
		}
	})
}

// waiting is how many wait when all that can happen now has happened after d.
func waiting(p *pool, d time.Duration) int {
	time.Sleep(d)
	synctest.Wait()
	return p.State().Waiting
}

func TestTake(t *testing.T) {
	try(t, nil, func(t *testing.T, f *factory, p *pool) {
		if n := waiting(p, time.Minute); n != 0 {
			t.Error("nothing was asked for, and there are", n)
		}
		if got, ok := p.Take(); ok {
			t.Error(got)
		}
		p.Want("a")
		if n := waiting(p, time.Second); n != 1 {
			t.Error("one is made at a time, and there are", n)
		}
		if n := waiting(p, time.Minute); n != 2 {
			t.Error("there are", n)
		}
		for i := range 2 {
			got, ok := p.Take()
			if !ok || got.n != i {
				t.Error(got, ok)
			}
			p.Retire(got)
		}
		if _, ok := p.Take(); ok {
			t.Error("more than there are")
		}
		if n := waiting(p, time.Minute); n != 2 {
			t.Error("there are", n)
		}
		if s := p.State(); s.Taken != 2 || s.Missed != 2 || s.Err != nil {
			t.Errorf("%+v", s)
		}
	})
}

// Each is given to one caller.
func TestTakeAtOnce(t *testing.T) {
	try(t, func(_ *factory, o *warmpool.Options[string, thing]) { o.Ready, o.Makers = 8, 4 }, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		if n := waiting(p, 2*time.Second); n != 8 || f.top != 4 {
			t.Errorf("there are %d; %d were made at a time", n, f.top)
		}
		taken := make(chan thing, 100)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got, ok := p.Take(); ok {
					taken <- got
				}
			})
		}
		all.Wait()
		close(taken)
		seen := map[int]bool{}
		for got := range taken {
			if seen[got.n] {
				t.Error("two have", got)
			}
			seen[got.n] = true
			p.Retire(got)
		}
		if s := p.State(); len(seen) != 8 || s.Taken != 8 || s.Missed != 92 {
			t.Errorf("%d were taken: %+v", len(seen), s)
		}
	})
}

// Ten thousand claims of a pool of four: none gets what another has, or what has died, and what
// waits stays bounded.
func TestManyClaims(t *testing.T) {
	const claims, callers = 10000, 50
	try(t, func(f *factory, o *warmpool.Options[string, thing]) {
		f.takes, o.Ready, o.Makers = time.Millisecond, 4, 4
	}, func(t *testing.T, f *factory, p *pool) {
		var mu sync.Mutex
		seen, died := map[int]bool{}, map[int]bool{}
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for i := range claims / callers {
					p.Want("a")
					got, ok := p.Take()
					if w := p.State().Waiting; w > 4 {
						t.Errorf("%d wait", w)
					}
					if !ok {
						time.Sleep(time.Duration(caller+1) * 100 * time.Microsecond)
						continue
					}
					mu.Lock()
					if seen[got.n] || died[got.n] {
						t.Errorf("%d was given away before, or is dead", got.n)
					}
					seen[got.n] = true
					mu.Unlock()
					if i%7 == 0 { // the next one dies while it waits
						p.Take(func(_ string, next thing) bool {
							mu.Lock()
							died[next.n] = true
							mu.Unlock()
							f.mu.Lock()
							f.dead = append(f.dead, next)
							f.mu.Unlock()
							return false
						})
					}
					p.Retire(got)
				}
			})
		}
		all.Wait()
		s := p.State()
		if int(s.Taken) != len(seen) || s.Taken == 0 || len(died) == 0 {
			t.Errorf("%+v, %d were given away and %d died", s, len(seen), len(died))
		}
		t.Logf("%d claims got one, %d died", s.Taken, len(died))
	})
}

// How a pool does is for people, too: no address of a channel is.
func TestStateString(t *testing.T) {
	s := warmpool.State{Waiting: 2, Taken: 5, Missed: 1, Grown: make(chan struct{})}
	if got, want := fmt.Sprintf("%+v", []warmpool.State{s}), "[2 waiting, 5 taken, 1 missed]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Err = errors.New("no kernel")
	if got, want := fmt.Sprint(s), "2 waiting, 5 taken, 1 missed: no kernel"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What was made outside waits as well, and more of its kind are made.
func TestAdd(t *testing.T) {
	try(t, nil, func(t *testing.T, f *factory, p *pool) {
		first, _ := f.make(t.Context(), "a")
		grown := p.State().Grown
		p.Add("a", first)
		<-grown
		if n := waiting(p, time.Minute); n != 2 {
			t.Error("there are", n)
		}
		got, ok := p.Take()
		if !ok || got != first {
			t.Error(got, ok)
		}
		p.Retire(got)
	})
}

func TestConditions(t *testing.T) {
	try(t, nil, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		p.Want("b")
		waiting(p, time.Minute)
		is := func(kind string, n int) func(string, thing) bool {
			return func(k string, t thing) bool { return k == kind && k == t.kind && (n < 0 || t.n == n) }
		}
		b, _ := p.Take(is("b", -1))
		if b.kind != "b" {
			t.Error(b)
		}
		if got, ok := p.Take(is("c", -1)); ok {
			t.Error(got)
		}
		a, ok := p.Take(is("c", -1), is("a", -1), is("b", -1))
		if !ok || a.kind != "a" {
			t.Error(a, ok)
		}
		p.Retire(a)
		p.Retire(b)
		if s := p.State(); s.Taken != 2 || s.Missed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What is too old or has died is not given out, and another one is made.
func TestExpiry(t *testing.T) {
	try(t, func(_ *factory, o *warmpool.Options[string, thing]) { o.Ready = 1 }, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		waiting(p, time.Minute)
		f.mu.Lock()
		f.dead = slices.Clone(f.made)
		f.mu.Unlock()
		if got, ok := p.Take(); ok {
			t.Error("it is dead:", got)
		}
		if n := waiting(p, time.Minute); n != 1 {
			t.Error("there are", n)
		}
		if made, ended := f.count(); made != 2 || ended != 1 {
			t.Errorf("%d were made, %d destroyed", made, ended)
		}
		// It is looked for without a Take, too.
		if n := waiting(p, 2*time.Hour); n != 1 {
			t.Error("there are", n)
		}
		if made, ended := f.count(); made < 3 || ended != made-1 {
			t.Errorf("%d were made, %d destroyed", made, ended)
		}
	})
}

// What cannot be made is tried again after a pause, which grows.
func TestFailure(t *testing.T) {
	var told []error
	broken := errors.New("broken")
	try(t, func(f *factory, o *warmpool.Options[string, thing]) {
		f.takes, f.fails = 0, broken
		o.Makers, o.Ready = 4, 1
		o.Failed = func(_ string, err error) { told = append(told, err) }
	}, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		waiting(p, 10*time.Minute)
		var pauses []time.Duration
		for i := 1; i < len(f.failed); i++ {
			pauses = append(pauses, f.failed[i].Sub(f.failed[i-1]))
		}
		if pauses[0] != 100*time.Millisecond || pauses[1] != 200*time.Millisecond || slices.Max(pauses) != time.Minute || !slices.IsSorted(pauses) {
			t.Error(pauses)
		}
		if s := p.State(); !errors.Is(s.Err, broken) || len(told) != len(f.failed) {
			t.Errorf("%+v, told %d times of %d", s, len(told), len(f.failed))
		}
		f.mu.Lock()
		f.fails = nil
		f.mu.Unlock()
		if n := waiting(p, time.Minute); n != 1 || p.State().Err != nil {
			t.Errorf("%+v", p.State())
		}
	})
}

// Only some kinds are kept, those used last, and the last one however old.
func TestKinds(t *testing.T) {
	try(t, func(_ *factory, o *warmpool.Options[string, thing]) {
		o.Ready, o.Kinds, o.KindAge, o.Age = 1, 2, 15*time.Minute, 24*time.Hour
	}, func(t *testing.T, f *factory, p *pool) {
		of := func(kind string) bool {
			got, ok := p.Take(func(k string, _ thing) bool { return k == kind })
			if ok {
				p.Retire(got)
			}
			return ok
		}
		for _, kind := range []string{"a", "b", "c"} {
			p.Want(kind)
			waiting(p, time.Minute)
		}
		if n := waiting(p, time.Minute); n != 2 || of("a") || !of("b") || !of("c") {
			t.Error("of a, b, c there are", n)
		}
		waiting(p, 10*time.Minute)
		p.Want("b")
		if n := waiting(p, 10*time.Minute); n != 1 || of("c") || !of("b") {
			t.Error("of b, c there are", n)
		}
		if n := waiting(p, 10*time.Hour); n != 1 {
			t.Error("of b there are", n)
		}
	})
}

// A kind that has too many others before it while one of it is made goes afterwards.
func TestKindIsDroppedWhileOneIsMade(t *testing.T) {
	try(t, func(_ *factory, o *warmpool.Options[string, thing]) { o.Ready, o.Kinds = 1, 1 }, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		waiting(p, time.Second/2)
		p.Want("b")
		if n := waiting(p, time.Minute); n != 1 {
			t.Error("there are", n)
		}
		if got, ok := p.Take(); !ok || got.kind != "b" {
			t.Error(got, ok)
		} else {
			p.Retire(got)
		}
	})
}

func TestMemory(t *testing.T) {
	try(t, func(_ *factory, o *warmpool.Options[string, thing]) {
		o.Ready, o.Makers, o.MaxMemory, o.Memory = 8, 4, 25, func(thing) int64 { return 10 }
	}, func(t *testing.T, f *factory, p *pool) {
		first, _ := f.make(t.Context(), "a")
		p.Add("a", first) // what one takes is known from here on
		if n := waiting(p, time.Minute); n != 2 {
			t.Errorf("there are %d of 10 bytes in 25", n)
		}
	})
}

// Nothing is made while callers need the processors.
func TestHold(t *testing.T) {
	try(t, nil, func(t *testing.T, f *factory, p *pool) {
		one, two := p.Hold(), p.Hold()
		p.Want("a")
		if n := waiting(p, time.Hour); n != 0 {
			t.Error("there are", n)
		}
		one()
		if n := waiting(p, time.Hour); n != 0 {
			t.Error("there are", n)
		}
		two()
		if n := waiting(p, 2*time.Second); n != 2 {
			t.Error("there are", n)
		}
	})
}

// Close waits for what is being made and taken away, and says what was left.
func TestClose(t *testing.T) {
	left := errors.New("left behind")
	try(t, func(f *factory, _ *warmpool.Options[string, thing]) { f.undead = left }, func(t *testing.T, f *factory, p *pool) {
		p.Want("a")
		waiting(p, 1500*time.Millisecond) // one waits, the second is being made
		got, _ := p.Take()
		if err := p.Close(); !errors.Is(err, left) {
			t.Error(err)
		}
		if made, ended := f.count(); made != 2 || ended != 1 {
			t.Errorf("%d were made, %d destroyed", made, ended)
		}
		if _, ok := p.Take(); ok {
			t.Error("a pool that is closed gives one away")
		}
		p.Want("b")
		p.Retire(got) // of a caller that was longer under way
	})
}

// When its context has ended nothing more is made. What waits can be taken.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &factory{}
		ctx, cancel := context.WithCancel(t.Context())
		p := warmpool.New(ctx, warmpool.Options[string, thing]{Make: f.make, Destroy: f.destroy, Ready: 1, Age: time.Hour})
		p.Want("a")
		waiting(p, time.Minute)
		cancel()
		got, ok := p.Take()
		if n := waiting(p, time.Hour); !ok || n != 0 {
			t.Error(got, ok, n)
		}
		p.Retire(got)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRange: as many wait as a kind is to have, more after callers found none, and never more
// than it may have; those that are to wait are kept without being asked for.
func TestRange(t *testing.T) {
	made := make(chan int, 100)
	n := 0
	p := warmpool.New(t.Context(), warmpool.Options[string, int]{
		Make:    func(context.Context, string) (int, error) { n++; made <- n; return n, nil },
		Destroy: func(int) error { return nil },
		Range: func(kind string) (int, int) {
			if kind == "kept" {
				return 2, 4
			}
			return 0, 1
		},
		Age: time.Hour, Kinds: 1, KindAge: time.Nanosecond,
	})
	defer p.Close()
	waiting := func(want int) {
		t.Helper()
		for {
			s := p.State()
			if s.Waiting == want {
				return
			}
			if s.Waiting > want {
				t.Fatalf("%d wait, not %d", s.Waiting, want)
			}
			<-s.Grown
		}
	}
	p.Want("kept")
	waiting(2)
	for range 2 {
		p.Want("kept")
		if _, ok := p.Take(); !ok {
			t.Fatal("it is dry")
		}
	}
	release := p.Hold()
	for range 3 { // dry: whatever is left is taken
		for _, ok := p.Take(); ok; _, ok = p.Take() {
		}
		p.Want("kept")
	}
	release()
	waiting(4)
	p.Want("other")
	waiting(4) // of those none is to wait, and the kept ones stay
}
