// SPDX-License-Identifier: Apache-2.0

package faketest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"

	"github.com/caisson-run/caisson/sandbox"
)

// layer is what the level tells of a copy-on-write directory.
func (d *Driver) layer() []byte {
	if d.Changes != nil {
		return d.Changes
	}
	var empty bytes.Buffer
	_ = tar.NewWriter(&empty).Close() // into memory
	return empty.Bytes()
}

// ReadChanges tells of a living sandbox what a run tells at its end.
func (i *instance) ReadChanges(_ context.Context, _ string, w io.Writer) error {
	_, err := w.Write(i.d.layer())
	return err
}

// tellChanges tells the layers of a run.
func (d *Driver) tellChanges(spec *sandbox.Spec) {
	for _, m := range spec.Mounts {
		if spec.OnChanges != nil && m.Access == sandbox.CopyOnWrite && m.Dir {
			_ = spec.OnChanges(m.Target, bytes.NewReader(d.layer())) // which has its error
		}
	}
}
