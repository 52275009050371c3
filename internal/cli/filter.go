// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"unicode/utf8"
)

// filter passes a program's output on to a terminal and takes out what a
// terminal would obey rather than show: titles, clipboard writes and links
// (OSC), device strings (DCS, APC, PM, SOS), questions that the terminal would
// answer into the user's shell (DSR, DA, ENQ, title reports), modes, character
// sets and absolute cursor moves. Text, colours (SGR), line clearing and
// relative cursor moves, as progress bars use them, pass.
//
// It works on what ECMA-48 calls sequences, 7-bit and 8-bit, the latter raw or
// as UTF-8, and gives the same bytes however its input is cut into writes.
type filter struct {
	to io.Writer

	state   filterState
	seq     []byte // the sequence under way, for CSI and UTF-8
	need    int    // continuation bytes that are missing
	dropped int    // bytes of a string under way
	bell    bool   // BEL ends the string (OSC)
	escaped bool   // the string's last byte was ESC
	colored bool   // some colour is set
	out     []byte
}

type filterState int

const (
	ground filterState = iota
	inUTF8
	inEscape
	inNF // ESC with intermediates: character sets
	inCSI
	inString
)

const (
	esc        = 0x1b
	longestCSI = 64
	// longestString is how much of an unterminated string is swallowed before
	// output shows again.
	longestString = 64 << 10
	// passCSI are the final bytes that pass, without private markers: SGR,
	// erase in line, and moves relative to where the cursor is.
	passCSI = "mKABCDG"
)

func newFilter(to io.Writer) *filter { return &filter{to: to} }

// Write passes on what of p may pass.
func (f *filter) Write(p []byte) (int, error) {
	f.out = f.out[:0]
	for _, b := range p {
		f.step(b)
	}
	if len(f.out) == 0 {
		return len(p), nil
	}
	if _, err := f.to.Write(f.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the output: a colour that was left on is taken off.
func (f *filter) Close() error {
	f.out = f.out[:0]
	if f.state == inUTF8 {
		f.raw(f.seq)
	}
	if f.colored {
		f.out = append(f.out, "\x1b[0m"...)
	}
	f.state, f.colored = ground, false
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.to.Write(f.out)
	return err
}

func (f *filter) step(b byte) {
	switch f.state {
	case ground:
		f.ground(b)
	case inUTF8:
		f.utf8(b)
	case inEscape:
		f.escape(b)
	case inNF:
		switch {
		case b >= 0x20 && b <= 0x2f:
		case b >= 0x30 && b <= 0x7e:
			f.state = ground
		default:
			f.again(b)
		}
	case inCSI:
		f.csi(b)
	case inString:
		f.str(b)
	}
}

// again leaves a broken sequence and looks at b afresh.
func (f *filter) again(b byte) {
	f.state, f.seq = ground, f.seq[:0]
	f.ground(b)
}

func (f *filter) ground(b byte) {
	switch {
	case b == esc:
		f.state = inEscape
	case b == '\n', b == '\r', b == '\t', b == '\b', b == '\a':
		f.out = append(f.out, b)
	case b < 0x20 || b == 0x7f:
	case b < 0x80:
		f.out = append(f.out, b)
	case b >= 0xc2 && b <= 0xf4:
		f.state, f.seq = inUTF8, append(f.seq[:0], b)
		f.need = 1
		if b >= 0xe0 {
			f.need = 2
		}
		if b >= 0xf0 {
			f.need = 3
		}
	case b <= 0x9f:
		f.c1(b)
	default: // not UTF-8: Latin-1 text, say
		f.out = append(f.out, b)
	}
}

// utf8 gathers one character. What turns out not to be UTF-8 is looked at
// byte by byte, since a terminal may do the same.
func (f *filter) utf8(b byte) {
	if b < 0x80 || b > 0xbf {
		lead := f.seq
		f.state = ground
		f.raw(lead)
		f.step(b)
		return
	}
	f.seq = append(f.seq, b)
	if f.need--; f.need > 0 {
		return
	}
	f.state = ground
	if f.seq[0] == 0xc2 && b <= 0x9f { // U+0080 to U+009F: C1 controls
		f.c1(b)
		return
	}
	if !utf8.Valid(f.seq) { // a longer form of a control, say, which a terminal may take for one
		f.raw(f.seq)
		return
	}
	f.out = append(f.out, f.seq...)
}

// raw passes the bytes of a character that was not completed, without those
// that are controls by themselves. After a lead byte they cannot begin a
// sequence that a UTF-8 terminal knows.
func (f *filter) raw(bytes []byte) {
	for _, b := range bytes {
		if b >= 0xa0 {
			f.out = append(f.out, b)
		}
	}
}

// c1 is an 8-bit control.
func (f *filter) c1(b byte) {
	switch b {
	case 0x9b:
		f.state, f.seq = inCSI, f.seq[:0]
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f:
		f.begin(b == 0x9d)
	}
}

func (f *filter) begin(bell bool) {
	f.state, f.dropped, f.bell, f.escaped = inString, 0, bell, false
}

func (f *filter) escape(b byte) {
	switch {
	case b == '[':
		f.state, f.seq = inCSI, f.seq[:0]
	case b == ']':
		f.begin(true)
	case b == 'P' || b == 'X' || b == '^' || b == '_' || b == 'k': // k: screen's title
		f.begin(false)
	case b >= 0x20 && b <= 0x2f:
		f.state = inNF
	case b == esc:
	case b >= 0x30 && b <= 0x7e:
		f.state = ground
	default:
		f.again(b)
	}
}

func (f *filter) csi(b byte) {
	switch {
	case b >= 0x40 && b <= 0x7e:
		f.state = ground
		params := string(f.seq)
		if strings.IndexByte(passCSI, b) >= 0 && len(params) <= longestCSI && strings.Trim(params, "0123456789;:") == "" {
			f.out = append(append(append(f.out, esc, '['), params...), b)
			if b == 'm' {
				f.colored = strings.Trim(params, "0;") != ""
			}
		}
	case b >= 0x20 && b <= 0x3f:
		if len(f.seq) <= longestCSI {
			f.seq = append(f.seq, b)
		}
	default:
		f.again(b)
	}
}

// str swallows a string until its end: ST, for OSC also BEL, or CAN and SUB,
// which abort it.
func (f *filter) str(b byte) {
	f.dropped++
	switch {
	case f.escaped && b == '\\', b == 0x18, b == 0x1a, f.bell && b == '\a', f.dropped > longestString:
		f.state = ground
	case f.escaped && b != esc: // ESC that is not ST ends the string too, and begins anew
		f.state = inEscape
		f.escape(b)
	default:
		f.escaped = b == esc
	}
}
