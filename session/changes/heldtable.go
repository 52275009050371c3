// SPDX-License-Identifier: Apache-2.0

package changes

// heldGroup is names that are held back for one reason. Names are folded; * stands for
// any run of characters, at most once in a name, and {a,b} for a or b. A name with a slash
// is the last two parts of a path.
type heldGroup struct{ why, names string }

// heldTable is what is held back besides the names of internal/hostpath, which editors,
// agents, shells and version control run by themselves. What is here runs when a person
// builds, tests, installs or pushes, or tells an agent what to do, and is easily overlooked
// in a diff.
var heldTable = []heldGroup{
	{"a build or task runner runs it", `
makefile makefile.* gnumakefile bsdmakefile *.mk *.mak *.m4 configure configure.ac autogen.sh bootstrap
justfile .justfile taskfile taskfile{,.dist}.{yml,yaml} jakefile jakefile.js dodo.py fabfile.py tasks.py wscript sconstruct sconscript
gulpfile.* gruntfile.* project.json nodemon.json turbo.json nx.json lerna.json moon.yml tsconfig*.json deno.json* tasks.json launch.json
rakefile rakefile.rb *.rake guardfile fastfile podfile .rspec
gradlew gradlew.bat gradle.properties gradle-wrapper.{properties,jar} *.gradle *.gradle.kts mvnw mvnw.cmd .mvn pom.xml build.xml build.sc build.mill *.sbt .sbtopts .jvmopts
.bazelrc *.bazelrc .bazelversion build build.bazel workspace workspace.{bazel,bzlmod} workspace.*.bazel module.bazel tools/bazel *.bzl
cmakelists.txt cmakepresets.json cmakeuserpresets.json *.cmake meson.build build.zig premake5.lua xmake.lua magefile.go mage.go earthfile dagger.json
build.rs cargo.toml go.mod go.work go.env mix.exs project.clj deps.edn rebar.config* config.nims package.swift nextflow.config snakefile
*.csproj *.fsproj *.vbproj *.vcxproj *.props *.targets *.sln *.slnx nuget.config global.json xcschemes *.xcscheme *.pbxproj
tiltfile skaffold.yaml procfile process-compose*.{yml,yaml} tox.ini noxfile.py pytest.ini .golangci.*`},
	{"a CI system or a host of repositories acts by it, with its own secrets", `
.github/{workflows,actions} .github/dependabot.{yml,yaml} action.{yml,yaml} codeowners .gitea/workflows .forgejo/workflows .gitlab-ci.{yml,yaml} .gitlab/ci
jenkinsfile jenkinsfile.* .circleci .travis.yml azure-pipelines.{yml,yaml} .azure-pipelines .azuredevops bitbucket-pipelines.yml .drone.{yml,yaml,star}
.woodpecker .woodpecker.{yml,yaml} .buildkite {,.}appveyor.{yml,yaml} cloudbuild.{yml,yaml} .cirrus.{yml,yaml,star} .semaphore .tekton .teamcity
buildspec.{yml,yaml} codemagic.yaml wercker.yml .builds .build.yml {,.}goreleaser.{yml,yaml} .ci .concourse renovate.json renovate.json5 .renovaterc*
.readthedocs.{yml,yaml} netlify.toml fly.toml vercel.json`},
	{"a package manager runs or obeys it", `
.npmrc .yarnrc .yarnrc.yml .yarn .pnpmfile.* pnpm-workspace.yaml .pnp.cjs .pnp.loader.mjs {,.}bunfig.toml binding.gyp
pyproject.toml setup.{py,cfg} hatch_build.py uv.toml poetry.toml requirements*.txt pipfile .pip pip.conf .pypirc pixi.toml .condarc
gemfile gems.rb *.gemspec .bundle .gemrc extconf.rb composer.json .cargo conanfile.* vcpkg.json brewfile vagrantfile`},
	{"a package manager installs what it names", `
package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock* deno.lock cargo.lock go.sum go.work.sum poetry.lock uv.lock pdm.lock pipfile.lock
gemfile.lock gems.locked composer.lock flake.lock`},
	{"a shell or login runs it, or takes its environment from it", `
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc .screenrc
.tmux.conf .direnv config.fish .xprofile .xinitrc .xsession .ssh .netrc .wgetrc .curlrc .pam_environment autorun.inf desktop.ini
.env* .flaskenv .rbenv-vars .tool-versions .prototools mise.toml .mise* .{python,node,ruby,java,go}-version .nvmrc .rvmrc .sdkmanrc rust-toolchain rust-toolchain.toml
*.nix devenv.* devbox.json .gitpod.{yml,yaml} *.desktop *.lnk *.url *.command *.workflow`},
	{"the service manager starts it", `*.service *.timer *.socket *.path`},
	{"the language's runtime loads it by its name", `
conftest.py sitecustomize.py usercustomize.py manage.py pyvenv.cfg .venv *.pth .pdbrc* .pythonrc .pythonrc.py .noderc .psqlrc .sqliterc .mocharc* karma.conf.*`},
	{"the tool of that name runs or obeys it", `
*.config.{js,cjs,mjs,ts,cts,mts} .*rc{,.js,.cjs,.mjs,.ts,.cts,.mts,.json,.yml,.yaml}`},
	{"an editor runs or obeys it", `
_vimrc .vim .nvim .nvim.lua .exrc .local.vimrc coc-settings.json .ycm_extra_conf.py .clangd .emacs* .dir-locals.el *.sublime-* .project .settings`},
	{"an agent is told by it what to do", `
claude.md claude.local.md agents.md agents.override.md gemini.md skill.md .cursorrules .windsurfrules .clinerules .roomodes .rules mcp.json .mcp.json .agents .agent
.github/copilot-instructions.md .github/{instructions,prompts,agents,chatmodes,skills}`},
	{"a container engine builds or starts what it says", `
dockerfile dockerfile.* *.dockerfile containerfile containerfile.* .dockerignore .containerignore docker-bake.{hcl,json}
{,docker-}compose.{yml,yaml} {,docker-}compose.*.{yml,yaml}`},
	{"a tool that sets machines up acts by it", `ansible.cfg *.tf *.tf.json .terraform terragrunt.hcl pulumi.{yml,yaml} pulumi.*.{yml,yaml}`},
	{"a git hook runs it or what it names", `
.huskyrc* .simple-git-hooks.* simple-git-hooks.* .git-hooks githooks .githooks .hooks .lefthookrc* .pre-commit-config.{yml,yaml}`},
	{"git acts by it", `.gitattributes .gitmodules .gitconfig .gitignore .git-blame-ignore-revs .lfsconfig`},
}

// ordinaryDirs are names of the table that ordinary directories have, too. As directories
// they are not held back.
var ordinaryDirs = map[string]bool{"build": true, "bootstrap": true, "workspace": true, "configure": true, "bazel": true}
