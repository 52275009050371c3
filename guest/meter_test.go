// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// The meter sees the same frames however the bytes are cut.
func TestMeterFollowsFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 70_000), 1, 20).Draw(t, "sizes")
		var stream []byte
		for _, n := range sizes {
			stream = append(stream, byte(n>>16), byte(n>>8), byte(n), 0, 0, 0, 0, 0, 1)
			// A payload that looks like headers of frames that are refused.
			stream = append(stream, bytes.Repeat([]byte{0xff}, n)...)
		}
		m := newMeter(nil)
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			if err := m.pay(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if spent := int(maxWasteFrames - m.frames + 0.5); spent > len(sizes) || m.have != 0 || m.left != 0 {
			t.Fatalf("%d frames cost %d; %d bytes of a header and %d of a payload are open", len(sizes), spent, m.have, m.left)
		}
	})
}

func TestMeterBudget(t *testing.T) {
	ping := append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, make([]byte, 8)...)
	m := newMeter(nil)
	err := m.pay(bytes.Repeat(ping, maxWasteFrames/2))
	if err != nil {
		t.Errorf("a burst is refused: %v", err)
	}
	if err := m.pay(bytes.Repeat(ping, maxWasteFrames)); err != errWasteful {
		t.Errorf("a flood gives %v", err)
	}
	m = newMeter(nil)
	data := []byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}
	for range 100 {
		if err := m.pay(bytes.Repeat(data, maxWasteFrames/2)); err != nil {
			t.Fatalf("small frames that callers read are refused: %v", err)
		}
		m.credit(maxWasteFrames / 2 * 15) // with our own headers, as an exec has them
	}
}

func FuzzMeter(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 'x'}, 3)
	f.Add([]byte{255, 255, 255, 0, 0, 0, 0, 0, 1, 'x'}, 1)
	f.Fuzz(func(t *testing.T, stream []byte, chunk int) {
		if chunk < 1 {
			return
		}
		whole, parts := newMeter(nil), newMeter(nil)
		want := whole.pay(stream)
		var got error
		for at := 0; at < len(stream); at += chunk {
			got = parts.pay(stream[at:min(at+chunk, len(stream))])
		}
		if got != want || whole.left != parts.left || whole.have != parts.have {
			t.Errorf("in chunks %v, %d, %d; at once %v, %d, %d", got, parts.left, parts.have, want, whole.left, whole.have)
		}
	})
}
