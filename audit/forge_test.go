// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"testing"
)

// forge edits a body and computes everything that needs no key: the record's
// digests and, with all, every later record's and the head. It signs with a
// key of its own.
func forge(seq int64, all bool) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		l, err := Open(ctx, Options{Dir: dir, ReadOnly: true})
		must(t, err)
		inst := l.inst
		must(t, l.Close())
		key := newKey(t)
		db := raw(t, dir)
		defer db.Close()
		rows, err := db.Query("SELECT seq, at, entry, event, prev, digest, signature, body_digest, body FROM records WHERE seq >= ? ORDER BY seq", seq)
		must(t, err)
		var list []*record
		for rows.Next() {
			r := new(record)
			must(t, rows.Scan(&r.seq, &r.at, &r.entry, &r.event, &r.prev, &r.digest, &r.signature, &r.bodyDigest, &r.body))
			list = append(list, r)
		}
		must(t, rows.Err())
		for i, r := range list {
			if i > 0 && !all {
				break
			}
			if i == 0 {
				r.body = bytes.Replace(r.body, []byte("uid:1000"), []byte("uid:0"), 1)
			} else {
				r.prev = list[i-1].link()
			}
			if r.body != nil {
				r.seal(key, inst)
			}
			_, err := db.Exec("UPDATE records SET prev = ?, digest = ?, signature = ?, body_digest = ?, body = ? WHERE seq = ?", r.prev, r.digest, r.signature, r.bodyDigest, r.body, r.seq)
			must(t, err)
		}
		if last := list[len(list)-1]; all {
			_, err := db.Exec("UPDATE head SET link = ?", last.link())
			must(t, err)
		}
	}
}
