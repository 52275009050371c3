// SPDX-License-Identifier: Apache-2.0

package idmap

import (
	"crypto/rand"
	"encoding/binary"
)

// Private host ids lie between systemd's container range (which ends at
// 0x6fffffff) and the numbers that old tools take for negative
// (https://systemd.io/UIDS-GIDS/). Nothing on a host owns files there.
const (
	PrivateFirst = 0x70000000
	PrivateCount = 0x0fff0000
)

// PrivatePair returns the first of two neighbouring private ids, at random:
// with 500 sandboxes the chance that any two share one is below 1 in 1000,
// and they would still not see each other.
func PrivatePair() (uint32, error) {
	n, err := random()
	return PrivateFirst + 2*(n%(PrivateCount/2)), err
}

// PrivateID returns one private id, at random.
func PrivateID() (uint32, error) {
	n, err := random()
	return PrivateFirst + n%PrivateCount, err
}

func random() (uint32, error) {
	var b [4]byte
	_, err := rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}
