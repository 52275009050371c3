// SPDX-License-Identifier: Apache-2.0

package policy

// maxWord bounds what is compared, in bytes: no longer word was meant as a
// flag.
const maxWord = 64

// Distance is how far a word is from one that would have been right: the number of bytes to
// add, drop, change or swap with their neighbour to get from a to b (optimal string
// alignment). Where either is longer than 64 bytes it is 64.
func Distance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
