// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHeldNames(t *testing.T) {
	names := strings.Split(strings.TrimSpace(`
.vscode/tasks.json
.VSCODE/settings.json
sub/.idea/workspace.xml
.cursor/mcp.json
.claude/settings.json
.codex/config.toml
.devcontainer/devcontainer.json
.devcontainer.json
.envrc
.mcp.json
.husky/pre-commit
.githooks/pre-push
.pre-commit-config.yaml
.gitattributes
.gitmodules
.GitModules
.gitignore
Makefile
makefile
MAKEFILE
src/Makefile.
GNUmakefile
rules.mk
Justfile
.justfile
Taskfile.yml
taskfile.yaml
sub/tasks.json
Rakefile
build.gradle.kts
gradlew
.mvn/jvm.config
CMakeLists.txt
build.rs
setup.py
conftest.py
sitecustomize.py
venv/lib/x.pth
.npmrc
.yarnrc.yml
.yarn/releases/yarn.cjs
.cargo/config.toml
.github/workflows/ci.yml
.GitHub/Workflows/ci.yml
.github/actions/x/action.yml
.gitlab-ci.yml
Jenkinsfile
.circleci/config.yml
azure-pipelines.yml
.woodpecker.yml
Dockerfile
docker-compose.yml
compose.yaml
.bashrc
.profile
eslint.config.mjs
vite.config.ts
binding.gyp
VSCODE~1/tasks.json
MAKEFI~1
my.code-workspace
`), "\n")
	for _, at := range append(names, ".vs\u200bcode/tasks.json", "name\u202etxt.py", "esc\x1b[2J", ".vscode\u200d", "M\u200bakefile") {
		if len(heldName(at, false)) == 0 {
			t.Errorf("%q is not held back", at)
		}
	}
	for _, at := range []string{"main.go", "src/a.py", "README.md", "docs/makefile-howto.md", "package.json", "a/b/c.txt", "github/workflows.go", "ci.go", "täst.txt", "v1.2~3.txt.orig"} {
		if why := heldName(at, false); len(why) > 0 {
			t.Errorf("%q is held back: %v", at, why)
		}
	}
}

// What builds, tests, installs, deploys, and what tells agents what to do.
func TestHeldTable(t *testing.T) {
	names := strings.FieldsFunc(`eslint.config.js|vite.config.cjs|x.config.mjs|x.config.ts|x.config.cts|x.config.mts|.foorc|.foorc.js|.foorc.cjs|.foorc.mjs|.foorc.ts|.foorc.json|.foorc.yml|.foorc.yaml
Dockerfile.prod|Containerfile.dev|compose.prod.yml|compose.prod.yaml|docker-compose.ci.yml|docker-compose.ci.yaml
x.gradle|x.gradle.kts|gradle.properties|build.mill|ci.bazelrc|BUILD|sub/BUILD|BUILD.bazel|WORKSPACE|WORKSPACE.bazel|WORKSPACE.bzlmod|MODULE.bazel|tools/bazel|.pnpmfile.mjs
.drone.yaml|goreleaser.yml|goreleaser.yaml|.goreleaser.yml|.goreleaser.yaml|.renovaterc|.renovaterc.json5|appveyor.yml|appveyor.yaml|Jenkinsfile.release|.pre-commit-config.yml
.pdbrc|.pdbrc.py|gems.rb|Gemfile|x.gemspec|.rspec|Guardfile|Fastfile|fastlane/Fastfile|Podfile|lib/x.rake|Rakefile
.huskyrc|.huskyrc.json|.simple-git-hooks.cjs|.simple-git-hooks.json|simple-git-hooks.json|.git-hooks/x|githooks/x|.githooks/x|.hooks/x|.lefthookrc|.lefthookrc.sh
CLAUDE.md|sub/CLAUDE.local.md|AGENTS.md|GEMINI.md|.cursorrules|.windsurfrules|.clinerules|.clinerules/x.md|.roomodes|.rules|.github/copilot-instructions.md|.github/instructions/x.md
.github/prompts/x.md|.github/agents/x.md|.github/chatmodes/x.md|mcp.json|.mcp.json|.agents/x|.agent/x|skills/x/SKILL.md
pyproject.toml|setup.py|setup.cfg|conftest.py|pytest.ini|tox.ini|noxfile.py|hatch_build.py|uv.toml|poetry.toml|requirements.txt|requirements-dev.txt|Pipfile|Cargo.toml|build.rs
go.mod|go.work|go.env|.golangci.yml|.golangci.toml|pom.xml|x.sbt|.sbtopts|.jvmopts|composer.json|Makefile.inc|x.mk|x.m4|autogen.sh|bootstrap|deno.json|deno.jsonc
package-lock.json|yarn.lock|pnpm-lock.yaml|Cargo.lock|go.sum|poetry.lock|uv.lock|Gemfile.lock|composer.lock|bun.lock|bun.lockb|project.json|nodemon.json|.mocharc.jsonc
tsconfig.json|tsconfig.build.json|x.csproj|x.fsproj|x.vbproj|x.props|x.targets|x.sln|rebar.config|rebar.config.script|config.nims|premake5.lua|xmake.lua
.env|.env.local|.flaskenv|.rbenv-vars|.tool-versions|.prototools|mise.toml|.mise.toml|.mise.prod.toml|.python-version|.node-version|.nvmrc|.ruby-version|.java-version|.go-version
pyvenv.cfg|.venv/bin/x|sitecustomize.py|usercustomize.py|x.pth|_vimrc|.vim/x|.nvim/x|.nvim.lua|.exrc|.local.vimrc|coc-settings.json|.ycm_extra_conf.py|.clangd|.emacs|.emacs.d/init.el
.dir-locals.el|x.sublime-project|.project|.settings/x|x.xcodeproj/project.pbxproj|x.xcscheme|ansible.cfg|x.tf|.terraform/x|terragrunt.hcl|Pulumi.yaml|Pulumi.yml|Pulumi.dev.yaml
.gitpod.yml|devenv.nix|devenv.yaml|process-compose.yml|process-compose.yaml|x.nix|x.service|x.timer|x.socket|x.path|x.desktop|action.yml|action.yaml|CODEOWNERS|.github/CODEOWNERS
.readthedocs.yml|.readthedocs.yaml|netlify.toml|fly.toml|vercel.json|FLY.TOML|X.Config.JS`, func(r rune) bool { return r == '|' || r == '\n' })
	for _, at := range names {
		if len(heldName(at, false)) == 0 {
			t.Errorf("%q is not held back", at)
		}
	}
	for _, at := range []string{"src/main.go", "README.md", "docs/x.md", "lib/a.py", "test/a_test.go", "package/index.js", "build/a.txt", "bootstrap/css/x.css", "tools/bazel/x.go", "workspace.go", "src/config.js", "config.ts", "src/rc.js", "a.lock", "mod.go", "env.go", "skills.md", "fix/make.go"} {
		if why := heldName(at, false); len(why) > 0 {
			t.Errorf("%q is held back: %v", at, why)
		}
	}
	for dir := range ordinaryDirs {
		if why := heldName(dir, true); len(why) > 0 {
			t.Errorf("the directory %q is held back: %v", dir, why)
		}
	}
}

func TestGitIn(t *testing.T) {
	for at, want := range map[string]string{
		".git/hooks/x": ".git", "a/.git": "a/.git", ".GIT/config": ".GIT", ".Git": ".Git", ".g\u200cit/x": ".g\u200cit", ".git./x": ".git.", ".git /x": ".git ",
		"git~1/config": "git~1", "GIT~1": "GIT~1", ".ｇｉｔ/x": ".ｇｉｔ", ".git::$INDEX_ALLOCATION/x": ".git::$INDEX_ALLOCATION", ".github/x": "", "git/x": "", "a.git/x": "", ".gitx": "",
	} {
		if got, ok := gitIn(at); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", at, got, ok)
		}
	}
}

// What is held back of a set, and why.
func TestHeld(t *testing.T) {
	host := tree{
		"package.json":  {File, `{"name": "x", "version": "1", "scripts": {"test": "x"}}`, false},
		"run.sh":        {File, "old", true},
		"text.sh":       {File, "old", false},
		"dir":           {kind: Dir},
		"through":       {kind: Link, text: "dir"},
		"opencode.json": {File, "", false},
		"HEAD":          {File, "", false}, "refs": {kind: Dir},
	}
	for name, tc := range map[string]struct {
		layer *tarWriter
		want  string // why the last of the paths is held back; empty is not
	}{
		"plain":                      {newTar().file("a.go", "x", 0o644), ""},
		"a new exec bit":             {newTar().file("a.sh", "x", 0o755), "it can be run: its exec bit is new"},
		"for others alone":           {newTar().file("a.sh", "x", 0o611), "it can be run: its exec bit is new"},
		"one on a file":              {newTar().file("text.sh", "old", 0o755), "it can be run: its exec bit is new"},
		"one that was there":         {newTar().file("run.sh", "new", 0o755), ""},
		"one that is gone":           {newTar().file("run.sh", "old", 0o644), ""},
		"other scripts":              {newTar().file("package.json", `{"name": "x", "version": "1", "scripts": {"test": "y"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"another case":               {newTar().file("package.json", `{"name": "x", "Scripts": {"test": "y"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"the same scripts":           {newTar().file("package.json", `{"version": "2", "name": "x", "author": {"name": "y"}, "scripts": {"test": "x"}}`, 0o644), ""},
		"no JSON":                    {newTar().file("package.json", `{`, 0o644), "a package manager runs or obeys what changed in it"},
		"new scripts":                {newTar().file("z/package.json", `{"scripts": {"postinstall": "x"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"harmless keys":              {newTar().file("z/package.json", `{"version": "1", "license": "MIT"}`, 0o644), ""},
		"another entry point":        {newTar().file("package.json", `{"name": "x", "main": "y", "scripts": {"test": "x"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"another dependency":         {newTar().file("z/package.json", `{"dependencies": {"x": "1"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"a link for it":              {newTar().link("package.json", "dir/x"), "a package manager runs or obeys what changed in it"},
		"a link above held names":    {newTar().link("z/.GitHub", "../dir"), "it is a link, and in a directory of that name certain names are held back"},
		"one above protected names":  {newTar().link(".config", "dir"), "it is a link, and in a directory of that name certain names are held back"},
		"a backslash":                {newTar().file(`a\b`, "x", 0o644), `some systems take a \ or : in its name for another place`},
		"a colon":                    {newTar().file("a.txt:b", "x", 0o644), `some systems take a \ or : in its name for another place`},
		"a control character":        {newTar().file("a\x01", "x", 0o644), "its name has characters that are not seen"},
		"a directory's mode":         {newDir("dir", 0o700), "its mode changes from 0755 to 0700"},
		"a new directory's mode":     {newDir("z", 0o700), ""},
		"a directory named build":    {newTar().dir("build").file("build/a.txt", "x", 0o644), ""},
		"a file named build":         {newTar().file("BUILD", "x", 0o644), "BUILD: a build or task runner runs it"},
		"a link to a build dir":      {newTar().dir("build").link("l", "build"), ""},
		"a link to a build file":     {newTar().link("l", "Build"), "it leads to what is held back: Build: a build or task runner runs it"},
		"in another spelling":        {newTar().file("z/Package.JSON", `{"scripts": {"postinstall": "x"}}`, 0o644), "a package manager runs or obeys what changed in it"},
		"a link":                     {newTar().link("l", "dir/x"), ""},
		"an absolute link":           {newTar().link("l", "/etc"), "it is a link to /etc, from the top of the host"},
		"a link out":                 {newTar().link("l", "../x"), "it is a link out of the workspace: ../x"},
		"a link out and in":          {newTar().link("z/l", "../../ws/x"), "it is a link out of the workspace: ../../ws/x"},
		"a link through another":     {newTar().link("a", ".").link("z/l", "../a/../../x"), "it is a link through another one, a"},
		"a link through the host's":  {newTar().link("l", "through/x"), "it is a link through another one, through"},
		"a link to .git":             {newTar().link("src", ".git"), "it leads to what is held back: .git: git runs the hooks and config of a repository made here"},
		"a link into .git":           {newTar().link("z/src", "../.GIT/hooks"), "it leads to what is held back: .GIT: git runs the hooks and config of a repository made here"},
		"a link to an editor's":      {newTar().link("l", ".vscode"), "it leads to what is held back: .vscode: the editor runs its tasks and settings"},
		"a link with a drive":        {newTar().link("l", `C:\x`), `some systems take a \ or : in a link for another place`},
		"a bare repository":          {newTar().file("objects/x", "x", 0o644), "with it, git would take . for a repository and run its config"},
		"below one that is held":     {newTar().dir(".vscode").dir(".vscode/x").file(".vscode/x/y", "x", 0o644), ".vscode: the editor runs its tasks and settings"},
		"a removal":                  {newTar().whiteout("text.sh"), ""},
		"a removal of a name":        {newTar().whiteout("opencode.json"), "opencode.json: an agent's own configuration: its servers"},
		"a directory open to others": {newDir("dir", 0o777), "its mode changes from 0755 to 0777; other users could write to it"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t, host)
			set := ws.keep(tc.layer.bytes())
			last := set.Entries[len(set.Entries)-1]
			if diff := cmp.Diff(tc.want, strings.Join(last.Held, "; ")); diff != "" {
				t.Errorf("%s: -want +got\n%s", last.Path, diff)
			}
		})
	}
}

func newDir(at string, mode int64) *tarWriter {
	w := newTar()
	w.dirs(at, mode)
	return w
}

// What the issue names is held back, and the canary of the host is not read.
func TestPlanted(t *testing.T) {
	host := tree{}
	host.put(".git/config", object{File, "old", false})
	host.put("a.go", object{File, "old", false})
	ws := newWorkspace(t, host)
	set := ws.keep(newTar().file(".git/hooks/pre-commit", "evil", 0o755).file(".git/config", "evil", 0o644).file(".GIT/hooks/pre-commit", "evil", 0o755).
		file("sub/.g\u200bit/config", "evil", 0o644).file(".vscode/tasks.json", "evil", 0o644).link("src", ".git").link("lib/.git", "../x").file("a.go", "new", 0o644).bytes())
	want := []Repository{{".GIT", 2}, {".git", 3}, {"lib/.git", 1}, {"sub/.g\u200bit", 1}}
	want[0].Changes, want[1].Changes = 1, 2
	if diff := cmp.Diff(want, set.Repositories); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{".vscode", ".vscode/tasks.json", "src"}, held(set)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	a, err := ws.apply(set, ApplyOptions{})
	if err != nil || !cmp.Equal(a.Paths, []string{"a.go", "lib", "sub"}) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := ws.apply(set, ApplyOptions{Held: []string{".git/hooks/pre-commit"}}); err == nil || !strings.Contains(err.Error(), "nothing below .git is ever applied") {
		t.Error(err)
	}
	if got := ws.read(".git/config"); got != "old" {
		t.Error(got)
	}
	got := readTree(t, ws.dir)
	for at := range got {
		if git, ok := gitIn(at); ok && git != ".git" || strings.HasPrefix(at, ".git/hooks") {
			t.Errorf("%s was made", at)
		}
	}
}
