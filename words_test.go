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
	err := forGo("Request", &sandbox.Error{Op: "--image", Kind: sandbox.ErrInvalid, Problem: "it is large", Hint: "raise --memory, or show it with --mount; --rootfs is none of it", Rule: "--allow"})
	var e *sandbox.Error
	if !errors.As(err, &e) || !errors.Is(err, sandbox.ErrInvalid) || e.Op != "Request.Image" || e.Rule != "--allow" ||
		e.Hint != "raise Request.Limits.Memory, or show it with Request.Mounts; --rootfs is none of it" {
		t.Errorf("%+v", e)
	}
	for _, err := range []error{nil, io.EOF, errors.Join(io.EOF, e)} {
		if forGo("Request", err) != err {
			t.Errorf("%v has become another", err)
		}
	}
	types := map[string]reflect.Type{"Request": reflect.TypeFor[Request](), "Create": reflect.TypeFor[Create](), "Exec": reflect.TypeFor[Exec]()}
	for flag := range fieldOf {
		for of := range types {
			first, path, _ := strings.Cut(field(of, flag), ".")
			at := types[first]
			for name := range strings.SplitSeq(path, ".") {
				f, ok := at.FieldByName(name)
				if !ok {
					t.Fatalf("%s of %s: there is no %s.%s", flag, of, first, path)
				}
				at = f.Type
			}
		}
	}
}
