// SPDX-License-Identifier: Apache-2.0

package hostpath

import (
	"strings"
	"testing"
)

// What some file system takes for a protected name is one.
func TestRunsByName(t *testing.T) {
	for _, tt := range []struct{ rel, part string }{
		{".git", ".git"}, {"a/.git/hooks/x", "a/.git"}, {".GIT", ".GIT"}, {".Git/config", ".Git"},
		{"git~1", "git~1"}, {"GIT~1/x", "GIT~1"}, {".git.", ".git."}, {".git ", ".git "}, {".git:x", ".git:x"}, {".git::$INDEX_ALLOCATION/config", ".git::$INDEX_ALLOCATION"},
		{".g\u200cit", ".g\u200cit"}, {"\ufeff.git", "\ufeff.git"}, {".g\u034fit", ".g\u034fit"}, {".gi\ufe0ft", ".gi\ufe0ft"},
		{"．git", "．git"}, {".ｇｉｔ", ".ｇｉｔ"}, {".vſcode", ".vſcode"}, {".VSCODE/tasks.json", ".VSCODE"}, {"x/.EnvRC", "x/.EnvRC"},
		{"Lefthook.YML", "Lefthook.YML"}, {".Config/Mise/x", ".Config/Mise"}, {"a/.config/mise.toml", "a/.config/mise.toml"}, {"mise.test.local.toml", "mise.test.local.toml"},
		{"mise/config.toml", "mise/config.toml"}, {"mise/x", ""}, {"config.toml", ""}, {".github/hooks/x.json", ".github/hooks"}, {"src/hooks", ""}, {"hooks", ""}, {"x.sublime-project", "x.sublime-project"}, {".\u212Airo", ".\u212Airo"}, {".mcp.json.", ".mcp.json."}, {"a/.mcp.json/b", "a/.mcp.json"},
		{"report.csv", ""}, {"git", ""}, {"a.git/x", ""}, {".github/workflows/x.yml", ""}, {".gitignore", ""}, {"vscode", ""}, {"\xff.git", ""}, {"", ""}, {"...", ""},
	} {
		part, why, ok := RunsByName(tt.rel)
		if part != tt.part || ok != (tt.part != "") || ok != (why != "") {
			t.Errorf("%q: %q, %q, %v, want %q", tt.rel, part, why, ok, tt.part)
		}
	}
}

func TestCompletesRepository(t *testing.T) {
	for _, tt := range []struct {
		name, there string // what exists, in words
		want        string
	}{
		{"HEAD", "objects refs", "."}, {"a/HEAD", "a/objects a/refs", "a"}, {"refs/heads/x", "HEAD objects", "."}, {"a/b/objects/ab/x", "a/b/HEAD a/b/refs", "a/b"},
		{"HEAD", "commondir", "."}, {"commondir", "HEAD", "."}, {"OBJECTS/x", "HEAD refs", "."}, {"head", "objects refs", "."},
		{"HEAD", "objects", ""}, {"HEAD", "", ""}, {"refs/x", "objects", ""}, {"x", "HEAD objects refs", ""}, {"a/HEAD", "objects refs", ""}, {"objects/HEAD", "refs", ""},
	} {
		there := strings.Fields(tt.there)
		dir, ok := CompletesRepository(tt.name, func(rel string) bool {
			for _, name := range there {
				if name == rel {
					return true
				}
			}
			return false
		})
		if dir != tt.want || ok != (tt.want != "") {
			t.Errorf("%s beside %s: %q, %v, want %q", tt.name, tt.there, dir, ok, tt.want)
		}
	}
}
