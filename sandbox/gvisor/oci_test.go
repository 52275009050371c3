// SPDX-License-Identifier: Apache-2.0

package gvisor

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"pgregory.net/rapid"
)

// TestSpecOnTheWire: what this level writes is read as the whole spec that it is a part of,
// and would have been written the same.
func TestSpecOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours := rapid.Make[ociSpec]().Draw(t, "spec")
		wrote, err := json.Marshal(&ours)
		if err != nil {
			t.Fatal(err)
		}
		var whole specs.Spec
		d := json.NewDecoder(bytes.NewReader(wrote))
		d.DisallowUnknownFields()
		if err := d.Decode(&whole); err != nil {
			t.Fatalf("%s: %v", wrote, err)
		}
		again, err := json.Marshal(&whole)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(wrote, again) {
			t.Errorf("%s became %s", wrote, again)
		}
	})
}

// TestPartsOfTheSpec: each field has the name that it has in the whole.
func TestPartsOfTheSpec(t *testing.T) {
	for _, pair := range [][2]reflect.Type{
		{reflect.TypeFor[ociSpec](), reflect.TypeFor[specs.Spec]()},
		{reflect.TypeFor[ociProcess](), reflect.TypeFor[specs.Process]()},
		{reflect.TypeFor[ociUser](), reflect.TypeFor[specs.User]()},
		{reflect.TypeFor[ociMount](), reflect.TypeFor[specs.Mount]()},
		{reflect.TypeFor[ociLinux](), reflect.TypeFor[specs.Linux]()},
	} {
		ours, whole := pair[0], pair[1]
		for i := range ours.NumField() {
			f := ours.Field(i)
			same, ok := whole.FieldByName(f.Name)
			if !ok || same.Tag.Get("json") != f.Tag.Get("json") {
				t.Errorf("%s.%s is not a field of %s with the tag %q", ours, f.Name, whole, f.Tag.Get("json"))
			}
		}
	}
}
