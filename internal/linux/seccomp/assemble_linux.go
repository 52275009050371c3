// SPDX-License-Identifier: Apache-2.0

package seccomp

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h). Arguments are 64 bits long;
// the lower half comes first on both of our architectures, which are
// little-endian.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

const (
	load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	mask    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	jump    = unix.BPF_JMP | unix.BPF_JA
	equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyBit  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	answer  = unix.BPF_RET | unix.BPF_K
)

// list is a filter as people think of it.
type list struct {
	arch    uint32             // AUDIT_ARCH_*
	foreign verdict            // another architecture's calls
	calls   map[uint32]verdict // by number
	other   verdict            // numbers that calls does not have
}

// judge is the list's answer, without a program.
func (l *list) judge(arch, number uint32, args [6]uint64) uint32 {
	if arch != l.arch {
		return l.foreign.judge(args)
	}
	if v, ok := l.calls[number]; ok {
		return v.judge(args)
	}
	return l.other.judge(args)
}

// assemble turns the list into the program that gives the same answers.
func (l *list) assemble() ([]unix.SockFilter, error) {
	foreign, err := l.foreign.assemble()
	if err != nil {
		return nil, err
	}
	body, err := tree(l.spans())
	if err != nil {
		return nil, err
	}
	p := []unix.SockFilter{
		{Code: load, K: offsetArch},
		{Code: equal, K: l.arch, Jt: 1},
		{Code: jump, K: uint32(len(body) + 1)},
		{Code: load, K: offsetNumber},
	}
	p = slices.Concat(p, body, foreign)
	if len(p) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("a filter of %d instructions; the kernel takes %d", len(p), unix.BPF_MAXINSNS)
	}
	return p, nil
}

// span is a verdict for all numbers from one on, up to the next span.
type span struct {
	from    uint32
	verdict verdict
}

// spans are the list's calls and the gaps between them, neighbours with the
// same verdict joined, beginning at 0.
func (l *list) spans() []span {
	var s []span
	add := func(from uint32, v verdict) {
		if len(s) == 0 || !s[len(s)-1].verdict.same(v) {
			s = append(s, span{from, v})
		}
	}
	next := uint64(0) // the first number that has no span yet
	for _, n := range slices.Sorted(maps.Keys(l.calls)) {
		if uint64(n) > next {
			add(uint32(next), l.other)
		}
		add(n, l.calls[n])
		next = uint64(n) + 1
	}
	if next <= 1<<32-1 {
		add(uint32(next), l.other)
	}
	return s
}

// tree searches the number, which is loaded, by halves.
func tree(s []span) ([]unix.SockFilter, error) {
	if len(s) == 1 {
		return s[0].verdict.assemble()
	}
	middle := len(s) / 2
	below, err := tree(s[:middle])
	if err != nil {
		return nil, err
	}
	above, err := tree(s[middle:])
	if err != nil {
		return nil, err
	}
	p := []unix.SockFilter{{Code: atLeast, K: s[middle].from, Jt: uint8(len(below))}}
	if len(below) > 255 { // a condition jumps no further
		p = []unix.SockFilter{{Code: atLeast, K: s[middle].from, Jf: 1}, {Code: jump, K: uint32(len(below))}}
	}
	return slices.Concat(p, below, above), nil
}

func (v verdict) assemble() ([]unix.SockFilter, error) {
	if v.test == nil {
		return []unix.SockFilter{{Code: answer, K: v.action}}, nil
	}
	t := v.test
	if t.arg > 5 || len(t.values) > 255 || t.values == nil && t.mask == 0 {
		return nil, errors.New("a test that no filter can make")
	}
	then, err := t.then.assemble()
	if err != nil {
		return nil, err
	}
	not, err := t.not.assemble()
	if err != nil {
		return nil, err
	}
	p := []unix.SockFilter{{Code: load, K: offsetArgs + 8*t.arg}}
	if t.values != nil && t.mask != 0 {
		p = append(p, unix.SockFilter{Code: mask, K: t.mask})
	}
	for i, value := range t.values {
		p = append(p, unix.SockFilter{Code: equal, K: value, Jt: uint8(len(t.values) - i)})
	}
	if t.values == nil {
		p = append(p, unix.SockFilter{Code: anyBit, K: t.mask, Jt: 1})
	}
	p = append(p, unix.SockFilter{Code: jump, K: uint32(len(then))})
	return slices.Concat(p, then, not), nil
}
