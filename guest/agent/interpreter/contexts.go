// SPDX-License-Identifier: Apache-2.0

package interpreter

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/interpreter"
)

// MaxContexts is how many contexts there are at most.
const MaxContexts = 128

// Contexts are those of a sandbox. It is safe for concurrent use.
type Contexts struct {
	mu   sync.Mutex
	all  map[string]*context
	made int

	timeouts timeouts // zero is the default
}

// Create makes a context. A kernel of ours starts with the first cell: what it loads can be
// its caller's (a module in its directory), and cells alone are decided. Others start here.
func (s *Contexts) Create(u User, o interpreter.ContextOptions) (interpreter.Context, error) {
	o.Language = interpreter.Language(o.Language)
	if err := o.Check(); err != nil {
		return interpreter.Context{}, &fault{ErrInvalid, err.Error()}
	}
	c, err := s.add(u, o, false)
	if err != nil {
		return interpreter.Context{}, err
	}
	if program := programs[family(c.language)]; program != "" {
		err = canStart(u, program, c.dir, c.env)
	} else {
		err = c.warm()
	}
	if err != nil {
		s.drop(c)
		return interpreter.Context{}, err
	}
	return c.describe(), nil
}

// add makes a context without a kernel. With orFind one of that ID is taken as it is.
func (s *Contexts) add(u User, o interpreter.ContextOptions, orFind bool) (*context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.ID == "" {
		o.ID = strings.ToLower(rand.Text())
	}
	if c := s.all[o.ID]; c != nil {
		if orFind && c.user.ID() == u.ID() {
			return c, c.speaks(o.Language)
		}
		return nil, &fault{ErrExists, fmt.Sprintf("there is a context %s already", o.ID)}
	}
	if len(s.all) >= MaxContexts {
		return nil, &fault{ErrExhausted, fmt.Sprintf("there are %d contexts already; remove some", MaxContexts)}
	}
	s.made++
	c := newContext(u, o, s.made, cmp.Or(s.timeouts, defaultTimeouts))
	if s.all == nil {
		s.all = map[string]*context{}
	}
	s.all[o.ID] = c
	return c, nil
}

// drop takes a context out and ends it.
func (s *Contexts) drop(c *context) {
	s.mu.Lock()
	if s.all[c.id] == c {
		delete(s.all, c.id)
	}
	s.mu.Unlock()
	c.remove()
}

// find is a context of u.
func (s *Contexts) find(u User, id string) (*context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.all[id]
	if c == nil || c.user.ID() != u.ID() {
		return nil, &fault{ErrNotFound, fmt.Sprintf("there is no context %.80q", id)}
	}
	return c, nil
}

// defaultID is the ID of the context that a cell gets which names none.
func defaultID(u User, language string) string {
	if language == interpreter.TypeScript {
		language = interpreter.JavaScript
	}
	id := language
	if interpreter.CheckID(id) != nil {
		sum := sha256.Sum256([]byte(language))
		id = "kernel-" + hex.EncodeToString(sum[:8])
	}
	if u.ID() == 0 {
		id += "-0" // another user's cannot be taken
	}
	return id
}

// choose is the context that a cell means, with a kernel.
func (s *Contexts) choose(u User, c *interpreter.Cell) (*context, error) {
	if err := c.Check(); err != nil {
		return nil, &fault{ErrInvalid, err.Error()}
	}
	if c.Context != "" {
		x, err := s.find(u, c.Context)
		if err == nil && c.Language != "" {
			err = x.speaks(c.Language)
		}
		return x, err
	}
	c.Language = interpreter.Language(c.Language)
	id := defaultID(u, c.Language)
	x, err := s.add(u, interpreter.ContextOptions{ID: id, Language: family(c.Language)}, true)
	if err != nil {
		return nil, err
	}
	if err := x.warm(); err != nil {
		if x.unused() {
			s.drop(x)
		}
		return nil, err
	}
	return x, nil
}

// family is the language of the kernel that runs a language.
func family(language string) string {
	if language == interpreter.TypeScript {
		return interpreter.JavaScript
	}
	return language
}

// List describes the contexts of u, the oldest first.
func (s *Contexts) List(u User) []interpreter.Context {
	s.mu.Lock()
	var mine []*context
	for _, c := range s.all {
		if c.user.ID() == u.ID() {
			mine = append(mine, c)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(mine, func(a, b *context) int { return cmp.Compare(a.number, b.number) })
	list := []interpreter.Context{}
	for _, c := range mine {
		list = append(list, c.describe())
	}
	return list
}

// Restart ends a context's kernel; the next cell gets a fresh one.
func (s *Contexts) Restart(u User, id string) error {
	c, err := s.find(u, id)
	if err == nil {
		c.end("its context was restarted")
	}
	return err
}

// Interrupt interrupts the cell that a context runs.
func (s *Contexts) Interrupt(u User, id string) error {
	c, err := s.find(u, id)
	if err == nil {
		c.interrupt()
	}
	return err
}

// Remove ends a context.
func (s *Contexts) Remove(u User, id string) error {
	c, err := s.find(u, id)
	if err == nil {
		s.drop(c)
	}
	return err
}

// Reseed gives the generators of random numbers of all kernels another beginning before
// their next cell: the sandbox was restored, or is a copy.
func (s *Contexts) Reseed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		var seed [32]byte
		rand.Read(seed[:])
		c.reseed(hex.EncodeToString(seed[:]))
	}
}

// Close ends all contexts.
func (s *Contexts) Close() {
	s.mu.Lock()
	all := s.all
	s.all = nil
	s.mu.Unlock()
	for _, c := range all {
		c.remove()
	}
}
