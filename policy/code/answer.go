// SPDX-License-Identifier: Apache-2.0

package code

import (
	"bytes"
	_ "embed" // the scripts that run inside
	"encoding/json"
	"errors"
	"io"
	"strings"
)

//go:embed python.py
var pythonScript string

//go:embed typescript.js
var typescriptScript string

// Script is a program of this package that reads a text on its standard input, in
// a sandbox, and what it is called in records.
type Script struct {
	Argv []string
	Name string
}

// Python is the script that reads Python. asFile says that the text is read as a
// file is, whose first lines may say how it is encoded.
func Python(asFile bool) Script {
	how := "text"
	if asFile {
		how = "file"
	}
	// -I and -S: nothing but the standard library decides what it does.
	return Script{Argv: []string{"python3", "-I", "-S", "-B", "-c", pythonScript, how}, Name: "python3 (caisson's reader)"}
}

// TypeScript is the script that takes types out.
func TypeScript() Script {
	return Script{Argv: []string{"node", "--no-warnings", "-e", typescriptScript}, Name: "node (caisson's reader)"}
}

// ReadPython reads what the script Python printed. That may be anything: a
// program that took the interpreter over wrote it.
func ReadPython(out []byte) *Facts {
	var a struct {
		Imports []answered `json:"imports"`
		Refs    []answered `json:"refs"`
		Dynamic []answered `json:"dynamic"`
		Loops   []answered `json:"loops"`
		More    bool       `json:"more"`
		Error   *answered  `json:"error"`
	}
	if err := decode(out, &a); err != nil {
		return fault(1, 1, "what its reader says of it cannot be understood: %v", err)
	}
	if a.Error != nil {
		return fault(a.Error.Line, a.Error.Column, "%s", a.Error.Name)
	}
	f := &Facts{More: a.More}
	total := len(a.Imports) + len(a.Refs) + len(a.Dynamic) + len(a.Loops)
	if total > maxFacts {
		return fault(1, 1, "its reader says %d things of it, the most is %d", total, maxFacts)
	}
	for from, to := range map[*[]answered]*[]Fact{&a.Imports: &f.Imports, &a.Refs: &f.Names, &a.Loops: &f.Loops} {
		for _, x := range *from {
			*to = append(*to, x.fact())
		}
	}
	for _, x := range a.Dynamic {
		if x.How == "import" {
			f.Unknown = append(f.Unknown, x.fact())
		} else {
			f.Code = append(f.Code, x.fact())
		}
	}
	return f
}

// ReadTypeScript reads what the script TypeScript printed, and then the JavaScript
// that it left.
func ReadTypeScript(out []byte) *Facts {
	var a struct {
		Code    *string   `json:"code"`
		Missing string    `json:"missing"`
		Error   *answered `json:"error"`
	}
	switch err := decode(out, &a); {
	case err != nil:
		return fault(1, 1, "what its reader says of it cannot be understood: %v", err)
	case a.Missing != "":
		return fault(1, 1, "%s", a.Missing)
	case a.Error != nil:
		return fault(a.Error.Line, a.Error.Column, "%s", a.Error.Name)
	case a.Code == nil:
		return fault(1, 1, "its reader says nothing of it")
	}
	return JavaScript([]byte(*a.Code))
}

// decode reads one JSON value and nothing else.
func decode(out []byte, v any) error {
	if len(out) > MaxAnswer {
		return errors.New("it is too long")
	}
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New("it is not what was asked for")
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more than was asked for")
	}
	return nil
}

// answered is a fact as scripts print it: [name, line, column, how], the last of
// which may be missing.
type answered struct {
	Name         string
	Line, Column int
	How          string
}

// most is the highest line or column that a text can have.
const maxLength = MaxText + 1

func (a *answered) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	to := []any{&a.Name, &a.Line, &a.Column, &a.How}
	if len(parts) < 3 || len(parts) > len(to) {
		return errors.New("not a fact")
	}
	for i, p := range parts {
		if string(p) == "null" {
			return errors.New("not a fact")
		}
		if err := json.Unmarshal(p, to[i]); err != nil {
			return err
		}
	}
	if a.Line < 0 || a.Line > maxLength || a.Column < 0 || a.Column > maxLength {
		return errors.New("not a place")
	}
	return nil
}

func (a *answered) fact() Fact {
	return Fact{Name: printable(strings.TrimSpace(a.Name)), Line: max(a.Line, 1), Column: max(a.Column, 1), How: printable(a.How)}
}
