// SPDX-License-Identifier: Apache-2.0

// Package warmpool keeps things ready that take time to make: each is made before
// it is asked for, waits, and is given away once. It knows nothing of sandboxes.
package warmpool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Options say what a pool keeps ready. A pool has things of several kinds K.
type Options[K comparable, T any] struct {
	// Make makes one of a kind. It runs beside the callers. Required.
	Make func(ctx context.Context, kind K) (T, error)
	// Destroy takes one away. Required. Its errors are those of Close.
	Destroy func(T) error
	// Alive reports whether one can still be given away; nil: each can. It must not
	// block.
	Alive func(T) bool
	// Failed hears why one of a kind could not be made; nil: nothing does. It must not block.
	Failed func(K, error)

	// Ready is how many of a kind wait at most, and Range, when set, what it is for a kind:
	// from min on, and up to max where callers found none; one that has a min is kept also
	// when it is not asked for.
	Ready int
	Range func(kind K) (min, max int)
	// Makers is how many are made at a time; 1 when it is 0.
	Makers int
	// Age is how long one waits at most. Required.
	Age time.Duration
	// MaxMemory bounds the bytes that all that wait hold together; 0 is no bound.
	// Memory is how many one holds.
	MaxMemory int64
	Memory    func(T) int64
	// Kinds are kept ready at most, each for KindAge from its last use. The kind that
	// was used last stays. 0 is no bound.
	Kinds   int
	KindAge time.Duration
}

// State is how a pool does.
type State struct {
	Waiting int   // that can be taken
	Taken   int64 // that callers have got
	Missed  int64 // callers that found none that fits
	Err     error // why the last one could not be made; nil when it could
	// Grown is closed when another one waits.
	Grown <-chan struct{}
}

// String is how it does, for people.
func (s State) String() string {
	text := fmt.Sprintf("%d waiting, %d taken, %d missed", s.Waiting, s.Taken, s.Missed)
	if s.Err != nil {
		text += ": " + s.Err.Error()
	}
	return text
}

// Pool keeps things ready. It may be used from many goroutines.
type Pool[K comparable, T any] struct {
	o      Options[K, T]
	ctx    context.Context // of what is being made
	cancel context.CancelFunc
	ending chan struct{}  // bounds how many are destroyed at a time
	tasks  sync.WaitGroup // makes and destroys

	mu     sync.Mutex
	closed bool
	timer  *time.Timer   // of the next look
	kinds  []*kind[K, T] // last used first
	held   int           // callers that have the processors first
	grown  chan struct{} // nil while no caller waits
	state  State
	left   error // what could not be destroyed
}

// kind is one kind of things.
type kind[K comparable, T any] struct {
	name   K
	ready  []item[T] // oldest first
	making int
	used   time.Time
	least  int           // that are to wait
	limit  int           // that may
	target int           // that are to wait now, from least to limit
	dry    time.Time     // when a caller last found none
	failed time.Time     // when the last could not be made
	pause  time.Duration // until the next is tried; 0 when the last could be made
}

// item is a thing that waits.
type item[T any] struct {
	value  T
	born   time.Time
	memory int64
}

const (
	// maxLook is how long a pool does not look for what is too old or has died.
	maxLook = 30 * time.Second
	// firstPause follows a make that failed. It doubles each time, up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
	// maxEnding are destroyed at a time.
	maxEnding = 16
)

// New makes a pool. It makes nothing before Want or Add, and nothing more when ctx
// has ended. The caller must call Close.
func New[K comparable, T any](ctx context.Context, o Options[K, T]) *Pool[K, T] {
	p := &Pool[K, T]{o: o, ending: make(chan struct{}, maxEnding)}
	p.o.Makers = max(1, o.Makers)
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.look(), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refill()
	})
	return p
}

func (p *Pool[K, T]) look() time.Duration { return min(maxLook, p.o.Age/4) }

// Want notes that a kind is asked for: some of it are kept ready from now on.
func (p *Pool[K, T]) Want(name K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want(name)
	p.refill()
}

func (p *Pool[K, T]) want(name K) *kind[K, T] {
	k := &kind[K, T]{name: name, least: p.o.Ready, limit: p.o.Ready, target: p.o.Ready}
	if p.o.Range != nil {
		k.least, k.limit = p.o.Range(name)
		k.target = k.least
	}
	if i := slices.IndexFunc(p.kinds, func(k *kind[K, T]) bool { return k.name == name }); i >= 0 {
		k = p.kinds[i]
		p.kinds = slices.Delete(p.kinds, i, i+1)
		if len(k.ready) == 0 && k.target < k.limit { // it was asked for, and there is none
			k.target, k.dry = min(max(2*k.target, 1), k.limit), time.Now()
		}
	}
	k.used = time.Now()
	p.kinds = slices.Insert(p.kinds, 0, k)
	return k
}

// Add has one wait that the caller made. Its kind is asked for.
func (p *Pool[K, T]) Add(name K, value T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(p.want(name), value)
	p.refill()
}

// Take gives away the oldest thing that is alive and fits. Where several conditions
// are given, what fits an earlier one goes first. Without one, everything fits.
func (p *Pool[K, T]) Take(fits ...func(K, T) bool) (value T, ok bool) {
	if len(fits) == 0 {
		fits = append(fits, func(K, T) bool { return true })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire()
	defer p.refill()
	for _, fit := range fits {
		for _, k := range p.kinds {
			for i, it := range k.ready {
				if fit(k.name, it.value) {
					k.ready = slices.Delete(k.ready, i, i+1)
					p.state.Taken++
					return it.value, true
				}
			}
		}
	}
	p.state.Missed++
	return value, false
}

// Retire destroys a thing that was taken, beside the caller while the pool is open.
func (p *Pool[K, T]) Retire(value T) {
	p.mu.Lock()
	open := !p.closed
	if open {
		p.destroyLater(value)
	}
	p.mu.Unlock()
	if !open {
		p.destroy(value)
	}
}

// Hold has nothing made until release is called: its caller needs the processors.
func (p *Pool[K, T]) Hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held--
		p.refill()
	}
}

// State says how the pool does.
func (p *Pool[K, T]) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.grown == nil {
		p.grown = make(chan struct{})
	}
	s := p.state
	s.Grown = p.grown
	for _, k := range p.kinds {
		s.Waiting += len(k.ready)
	}
	return s
}

// Close destroys all that wait, and waits until that is done. Its error says what
// could not be destroyed since New.
func (p *Pool[K, T]) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	p.timer.Stop()
	for _, k := range p.kinds {
		p.empty(k)
	}
	p.mu.Unlock()
	p.tasks.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// refill starts to make what is missing, and sets when it is looked again. The caller
// holds mu.
func (p *Pool[K, T]) refill() {
	if p.closed || p.ctx.Err() != nil {
		return
	}
	p.expire()
	for {
		k, again := p.next()
		if k == nil {
			p.timer.Reset(again)
			return
		}
		k.making++
		p.tasks.Go(func() { p.make(k) })
	}
}

// next is the kind that lacks one, the last used first; nil where none is to be made
// before again has passed, or something changes. The caller holds mu.
func (p *Pool[K, T]) next() (_ *kind[K, T], again time.Duration) {
	again = p.look()
	if p.held > 0 || !p.affords() {
		return nil, again
	}
	for _, k := range p.kinds {
		if len(k.ready)+k.making >= k.target || k.pause > 0 && k.making > 0 {
			continue
		}
		if wait := k.pause - time.Since(k.failed); wait > 0 {
			again = min(again, wait)
			continue
		}
		return k, again
	}
	return nil, again
}

// affords reports whether another one may be made, as far as makers and memory go.
// The largest that waits says what one takes.
func (p *Pool[K, T]) affords() bool {
	var memory, largest int64
	making := 0
	for _, k := range p.kinds {
		making += k.making
		for _, it := range k.ready {
			memory, largest = memory+it.memory, max(largest, it.memory)
		}
	}
	return making < p.o.Makers && (p.o.MaxMemory == 0 || memory+int64(making+1)*largest <= p.o.MaxMemory)
}

// make makes one.
func (p *Pool[K, T]) make(k *kind[K, T]) {
	value, err := p.o.Make(p.ctx, k.name)
	if err != nil && p.o.Failed != nil && p.ctx.Err() == nil {
		p.o.Failed(k.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.making--
	p.state.Err = err
	if err != nil {
		k.failed, k.pause = time.Now(), min(max(2*k.pause, firstPause), lastPause)
	} else {
		k.pause = 0
		p.add(k, value)
	}
	p.refill()
}

// add has one wait, unless the pool was closed. The caller holds mu.
func (p *Pool[K, T]) add(k *kind[K, T], value T) {
	if p.closed {
		p.destroyLater(value)
		return
	}
	it := item[T]{value: value, born: time.Now()}
	if p.o.Memory != nil {
		it.memory = p.o.Memory(value)
	}
	k.ready = append(k.ready, it)
	if p.grown != nil {
		close(p.grown)
		p.grown = nil
	}
}

// expire takes away what is too old or has died, and kinds that are not used any more.
// The caller holds mu.
func (p *Pool[K, T]) expire() {
	for i := len(p.kinds) - 1; i > 0; i-- {
		k := p.kinds[i]
		unused := p.o.Kinds > 0 && i >= p.o.Kinds || p.o.KindAge > 0 && time.Since(k.used) > p.o.KindAge
		if unused && k.making == 0 && (p.o.Range == nil || k.least == 0) {
			p.empty(k)
			p.kinds = slices.Delete(p.kinds, i, i+1)
		}
	}
	for _, k := range p.kinds {
		if k.target > k.least && time.Since(k.dry) > max(p.o.Age, time.Second) { // there were enough for a while
			k.target, k.dry = k.target-1, time.Now()
		}
		k.ready = slices.DeleteFunc(k.ready, func(it item[T]) bool {
			if time.Since(it.born) < p.o.Age && (p.o.Alive == nil || p.o.Alive(it.value)) {
				return false
			}
			p.destroyLater(it.value)
			return true
		})
	}
}

// empty takes away all that wait of a kind. The caller holds mu.
func (p *Pool[K, T]) empty(k *kind[K, T]) {
	for _, it := range k.ready {
		p.destroyLater(it.value)
	}
	k.ready = nil
}

// destroyLater destroys one beside the caller, who holds mu.
func (p *Pool[K, T]) destroyLater(value T) {
	p.tasks.Go(func() {
		p.ending <- struct{}{}
		defer func() { <-p.ending }()
		p.destroy(value)
	})
}

func (p *Pool[K, T]) destroy(value T) {
	if err := p.o.Destroy(value); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.left = errors.Join(p.left, err)
	}
}
