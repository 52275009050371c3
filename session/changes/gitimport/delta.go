// SPDX-License-Identifier: Apache-2.0

package gitimport

import "errors"

var errDelta = errors.New("its delta is malformed")

// applyDelta makes an object of the one that it is a delta of.
func applyDelta(from, delta []byte, maximum int64) ([]byte, error) {
	was, delta, ok := deltaSize(delta)
	size, delta, ok2 := deltaSize(delta)
	if !ok || !ok2 || was != int64(len(from)) || size > maximum {
		return nil, errDelta
	}
	var out []byte
	for len(delta) > 0 {
		c := delta[0]
		delta = delta[1:]
		if c == 0 {
			return nil, errDelta
		}
		n := int64(c)
		piece := delta
		if c&0x80 != 0 {
			var v [7]int64
			for i := range v {
				if c&(1<<i) != 0 {
					if len(delta) == 0 {
						return nil, errDelta
					}
					v[i], delta = int64(delta[0]), delta[1:]
				}
			}
			at := v[0] | v[1]<<8 | v[2]<<16 | v[3]<<24
			if n = v[4] | v[5]<<8 | v[6]<<16; n == 0 {
				n = 0x10000
			}
			if at+n > int64(len(from)) {
				return nil, errDelta
			}
			piece = from[at:]
		} else {
			if n > int64(len(delta)) {
				return nil, errDelta
			}
			delta = delta[n:]
		}
		if int64(len(out))+n > size {
			return nil, errDelta
		}
		out = append(out, piece[:n]...)
	}
	if int64(len(out)) != size {
		return nil, errDelta
	}
	return out, nil
}

func deltaSize(b []byte) (v int64, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 6; i++ {
		v |= int64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:], true
		}
	}
	return 0, nil, false
}
