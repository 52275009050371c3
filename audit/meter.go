// SPDX-License-Identifier: Apache-2.0

package audit

// rowBytes is what a record takes beside its body, about: digests, signature, indexes.
const rowBytes = 500

// Meter has wrote told what the calls of each account have added, in bytes, about: content
// that is there already counts again. It must not block. The last Meter counts.
func (l *Log) Meter(wrote func(account string, bytes int64)) { l.wrote.Store(&wrote) }

// count tells who wants to know of what was committed.
func (l *Log) count(account string, list ...*addition) {
	wrote := l.wrote.Load()
	if wrote == nil || account == "" {
		return
	}
	n := int64(0)
	for _, a := range list {
		n += rowBytes + int64(len(a.body))
		for _, c := range a.kept {
			n += int64(len(c.Kept()))
		}
	}
	(*wrote)(account, n)
}
