// SPDX-License-Identifier: Apache-2.0

package changes

import (
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/caisson-run/caisson/internal/hostpath"
)

// Why a name is held back. internal/hostpath has the names that editors, agents, shells
// and version control run by themselves; these run when somebody builds, tests, installs
// or pushes, and are easily overlooked in a diff.
const (
	whyTask    = "a build or task runner runs it"
	whyCI      = "a CI system runs it with its own secrets"
	whyInstall = "a package manager runs or obeys it"
	whyShell   = "a shell or login runs it"
	whyImport  = "the language's runtime loads it by its name"
	whyImage   = "a container engine builds or starts what it says"
	whyGit     = "git acts by it"
)

// heldNames are files and directories by their folded names, or by the last two parts of
// their paths.
var heldNames = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for why, names := range map[string]string{
		whyTask: "makefile gnumakefile bsdmakefile justfile .justfile taskfile taskfile.yml taskfile.yaml taskfile.dist.yml taskfile.dist.yaml " +
			"rakefile rakefile.rb gulpfile.js gulpfile.mjs gulpfile.cjs gulpfile.ts gulpfile.babel.js gruntfile.js gruntfile.cjs gruntfile.coffee jakefile jakefile.js " +
			"tasks.json launch.json tasks.py noxfile.py tox.ini dodo.py fabfile.py wscript sconstruct sconscript magefile.go mage.go earthfile dagger.json " +
			"build.gradle build.gradle.kts settings.gradle settings.gradle.kts init.gradle gradlew gradlew.bat gradle-wrapper.properties gradle-wrapper.jar " +
			"mvnw mvnw.cmd .mvn build.xml build.sbt build.sc build.rs build.zig cmakelists.txt cmakepresets.json cmakeuserpresets.json meson.build configure configure.ac makefile.am " +
			".bazelrc .bazelversion module.bazel workspace.bazel build.bazel tiltfile skaffold.yaml procfile turbo.json nx.json lerna.json moon.yml " +
			"snakefile nextflow.config package.swift mix.exs project.clj deps.edn directory.build.props directory.build.targets nuget.config global.json xcschemes",
		whyCI: ".github/workflows .github/actions .github/dependabot.yml .gitlab-ci.yml .gitlab-ci.yaml .gitlab/ci jenkinsfile .circleci .travis.yml azure-pipelines.yml azure-pipelines.yaml " +
			".azure-pipelines .azuredevops bitbucket-pipelines.yml .drone.yml .drone.star .woodpecker .woodpecker.yml .woodpecker.yaml .buildkite appveyor.yml .appveyor.yml cloudbuild.yaml cloudbuild.yml .cirrus.yml .cirrus.star " +
			".semaphore .gitea/workflows .forgejo/workflows .tekton .teamcity buildspec.yml buildspec.yaml codemagic.yaml wercker.yml .builds .build.yml .goreleaser.yml .goreleaser.yaml .ci .concourse renovate.json renovate.json5 .renovaterc",
		whyInstall: ".npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.cjs pnpm-workspace.yaml .pnp.cjs .pnp.loader.mjs .bunfig.toml bunfig.toml binding.gyp setup.py .cargo .pip pip.conf .pypirc pixi.toml conanfile.py vcpkg.json " +
			".rvmrc .bundle .gemrc extconf.rb .tool-versions .nvmrc .sdkmanrc rust-toolchain rust-toolchain.toml .python-version .ruby-version .node-version flake.nix shell.nix default.nix devenv.nix devbox.json .envrc.local brewfile vagrantfile .condarc",
		whyShell: ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc .screenrc .tmux.conf .direnv .env.fish config.fish .xprofile .xinitrc .xsession .ssh .netrc .wgetrc .curlrc .pam_environment autorun.inf desktop.ini",
		whyImport: "conftest.py sitecustomize.py usercustomize.py manage.py .pylintrc .perltidyrc .psqlrc .sqliterc .jshintrc.js .pythonrc .pythonrc.py .noderc " +
			"eslint.config.js eslint.config.mjs eslint.config.cjs eslint.config.ts .eslintrc.js .eslintrc.cjs .prettierrc.js .prettierrc.cjs .prettierrc.mjs prettier.config.js prettier.config.cjs prettier.config.mjs stylelint.config.js .stylelintrc.js .lintstagedrc.js .babelrc.js babel.config.js jest.config.js jest.config.ts vitest.config.ts vite.config.js vite.config.ts webpack.config.js rollup.config.js postcss.config.js tailwind.config.js next.config.js commitlint.config.js .commitlintrc.js .czrc karma.conf.js playwright.config.ts cypress.config.js",
		whyImage: "dockerfile containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml docker-compose.override.yml docker-compose.override.yaml compose.override.yml compose.override.yaml docker-bake.hcl docker-bake.json .dockerignore",
		whyGit:   ".gitattributes .gitmodules .gitconfig .gitignore .git-blame-ignore-revs .lfsconfig",
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
})

// heldEndings end the names of files that are held back.
var heldEndings = map[string]string{
	".mk": whyTask, ".mak": whyTask, ".gradle": whyTask, ".cmake": whyTask, ".bzl": whyTask, ".csproj": whyTask, ".vcxproj": whyTask, ".targets": whyTask,
	".pth": whyImport, ".desktop": whyShell, ".service": whyShell, ".lnk": whyShell, ".url": whyShell, ".command": whyShell, ".workflow": whyShell,
	".dockerfile": whyImage,
}

// shortName is what FAT and NTFS call a file with a longer name: GIT~1, VSCODE~1.
var shortName = regexp.MustCompile(`^[^.]{1,6}~[0-9]{1,5}(\.[^.]{0,3})?$`)

// gitIn finds the first part of a path that a file system may take for .git.
func gitIn(at string) (string, bool) {
	if !strings.ContainsAny(at, "gG~") && isASCII(at) {
		return "", false
	}
	end := 0
	for name := range strings.SplitSeq(at, "/") {
		end += len(name)
		if hostpath.IsGit(name) {
			return at[:end], true
		}
		end++
	}
	return "", false
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// heldName says why a path is held back for its names. Each directory above it counts.
func heldName(at string) (why []string) {
	if part, because, ok := hostpath.RunsByName(at); ok {
		why = append(why, Shown(part)+": "+because)
	}
	before := ""
	for name := range strings.SplitSeq(at, "/") {
		folded := hostpath.Folded(name)
		because, ok := heldNames()[folded]
		if !ok {
			because, ok = heldNames()[before+"/"+folded]
		}
		if !ok {
			because, ok = heldEndings[path.Ext(folded)]
		}
		switch {
		case ok:
			why = append(why, Shown(name)+": "+because)
		case shortName.MatchString(name):
			why = append(why, Shown(name)+": some file systems take it for a longer name")
		}
		before = folded
	}
	if Shown(at) != at {
		why = append(why, "its name has characters that are not seen")
	}
	return why
}
