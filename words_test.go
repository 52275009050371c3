// SPDX-License-Identifier: Apache-2.0

package caisson

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

func TestForGo(t *testing.T) {
	err := forGo(&sandbox.Error{Op: "--image", Kind: sandbox.ErrInvalid, Problem: "it is large", Hint: "raise --memory, or show it with --mount; --rootfs is none of it", Rule: "--allow"})
	var e *sandbox.Error
	if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrInvalid) || e.Op != "Request.Image" || e.Rule != "--allow" ||
		e.Hint != "raise Request.Limits.Memory, or show it with Request.Mounts; --rootfs is none of it" {
		t.Errorf("%+v", e)
	}
	for _, err := range []error{nil, io.EOF, errors.Join(io.EOF, e)} {
		if forGo(err) != err {
			t.Errorf("%v has become another", err)
		}
	}
	for flag, path := range fieldOf {
		at := reflect.TypeFor[Request]()
		for name := range strings.SplitSeq(path, ".") {
			f, ok := at.FieldByName(name)
			if !ok {
				t.Fatalf("%s: there is no %s", flag, path)
			}
			at = f.Type
		}
	}
}
