// SPDX-License-Identifier: Apache-2.0

package hostpath

// reach says how much of the host a forbidden path stands for. Whatever lies
// above a forbidden path is refused always, because it shows that path.
type reach int

const (
	itself reach = iota // the path, but not what is in it: a home folder
	tree                // the path and everything in it: ~/.ssh
)

// forbidden is one host path that is refused as a source.
type forbidden struct {
	path  string // absolute, or "~/…" for one in every home folder
	why   string // a phrase: "it holds SSH keys"
	rule  string // Error.Rule without "built-in: "
	reach reach
	never bool // AllowDangerous does not help
	write bool // refused only when the sandbox may change it
}

// The rules, as errors name them.
const (
	ruleKernel  = "kernel interfaces"
	ruleSocket  = "control sockets"
	ruleState   = "caisson's own state"
	ruleSystem  = "system directories"
	ruleHome    = "home folders"
	ruleSecret  = "host secrets"
	ruleRuns    = "what runs on the host"
	ruleSpecial = "special files"
	ruleInputs  = "what was read for the run"
)

// systemPaths are refused wherever they exist. Those that can never be had are
// what DESIGN calls so: with them code inside would hold the host itself.
var systemPaths = []forbidden{
	{"/proc", "it shows the host's processes and kernel", ruleKernel, tree, true, false},
	{"/sys", "it shows the host's devices and kernel", ruleKernel, tree, true, false},
	{"/dev", "it holds the host's devices", ruleKernel, tree, true, false},
	{"/run", "it holds the sockets of the host's services", ruleSocket, tree, true, false},
	{"/var/run", "it holds the sockets of the host's services", ruleSocket, tree, true, false},

	{"/", "it is the whole host", ruleSystem, itself, false, false},
	{"/etc", "it holds the host's accounts and configuration", ruleSystem, tree, false, false},
	{"/boot", "it holds what the host boots", ruleSystem, tree, false, false},
	{"/efi", "it holds what the host boots", ruleSystem, tree, false, false},
	{"/var", "it holds the state of the host's services", ruleSystem, itself, false, false},
	{"/var/lib", "it holds the state of the host's services", ruleSystem, itself, false, false},
	{"/var/lib/docker", "it holds all containers", ruleSystem, tree, false, false},
	{"/var/lib/containerd", "it holds all containers", ruleSystem, tree, false, false},
	{"/var/lib/containers", "it holds all containers", ruleSystem, tree, false, false},
	{"/var/lib/kubelet", "it holds the secrets of all pods", ruleSystem, tree, false, false},
	{"/var/lib/rancher", "it holds the secrets of all pods", ruleSystem, tree, false, false},
	{"/var/lib/cloud", "it holds the machine's credentials", ruleSystem, tree, false, false},
	{"/var/lib/systemd", "it holds the init system's state", ruleSystem, tree, false, false},
	{"/var/spool/cron", "the host runs what is in it", ruleSystem, tree, false, false},
	{"/var/mail", "it holds mail", ruleSystem, tree, false, false},
	{"/home", "it holds home folders", ruleHome, itself, false, false},

	{"/usr", "the host runs what is in it", ruleRuns, tree, false, true},
	{"/bin", "the host runs what is in it", ruleRuns, tree, false, true},
	{"/sbin", "the host runs what is in it", ruleRuns, tree, false, true},
	{"/lib", "the host runs what is in it", ruleRuns, tree, false, true},
	{"/lib64", "the host runs what is in it", ruleRuns, tree, false, true},
}

// socketPaths are sockets and directories of sockets outside /run that give
// power over the host, or hold the keys of its user.
var socketPaths = []forbidden{
	{"/tmp/.X11-unix", "it holds the sockets of the screen", ruleSocket, tree, true, false},
	{"/tmp/.ICE-unix", "it holds the sockets of the desktop session", ruleSocket, tree, true, false},
	{"/var/lib/lxd", "it holds the socket of LXD", ruleSocket, tree, true, false},
	{"/var/snap/lxd", "it holds the socket of LXD", ruleSocket, tree, true, false},
	{"/var/lib/incus", "it holds the socket of Incus", ruleSocket, tree, true, false},
	{"/var/lib/libvirt/qemu", "it holds the sockets of virtual machines", ruleSocket, tree, true, false},
	{"~/.docker/run", "it holds the socket of Docker", ruleSocket, tree, true, false},
	{"~/.docker/desktop", "it holds the sockets of Docker", ruleSocket, tree, true, false},
	{"~/.colima", "it holds the socket of Docker", ruleSocket, tree, true, false},
	{"~/.lima", "it holds the sockets of virtual machines", ruleSocket, tree, true, false},
	{"~/.rd", "it holds the socket of Docker", ruleSocket, tree, true, false},
	{"~/.orbstack", "it holds the socket of Docker", ruleSocket, tree, true, false},
	{"~/.gnupg/S.gpg-agent", "it is the socket of the GnuPG agent", ruleSocket, tree, true, false},
}

// socketVariables name sockets in the caller's environment. The value is a
// path, or an address with a path in it.
var socketVariables = []struct{ name, why string }{
	{"SSH_AUTH_SOCK", "it is the socket of the SSH agent"},
	{"DOCKER_HOST", "it is the socket of Docker"},
	{"CONTAINER_HOST", "it is the socket of Podman"},
	{"CONTAINERD_ADDRESS", "it is the socket of containerd"},
	{"DBUS_SESSION_BUS_ADDRESS", "it is the socket of the session bus"},
	{"XDG_RUNTIME_DIR", "it holds the sockets of the session"},
	{"WAYLAND_DISPLAY", "it is the socket of the screen"},
	{"TMUX", "it is the socket of tmux"},
	{"VSCODE_IPC_HOOK_CLI", "it is the socket of the editor"},
	{"VSCODE_GIT_IPC_HANDLE", "it is the socket of the editor"},
}

// secretPaths are in every home folder what no code should see.
var secretPaths = []forbidden{
	{"~/.ssh", "it holds SSH keys", ruleSecret, tree, false, false},
	{"~/.gnupg", "it holds GnuPG keys", ruleSecret, tree, false, false},
	{"~/.aws", "it holds AWS credentials", ruleSecret, tree, false, false},
	{"~/.azure", "it holds Azure credentials", ruleSecret, tree, false, false},
	{"~/.config/gcloud", "it holds Google Cloud credentials", ruleSecret, tree, false, false},
	{"~/.oci", "it holds Oracle Cloud credentials", ruleSecret, tree, false, false},
	{"~/.aliyun", "it holds Alibaba Cloud credentials", ruleSecret, tree, false, false},
	{"~/.config/doctl", "it holds DigitalOcean credentials", ruleSecret, tree, false, false},
	{"~/.config/hcloud", "it holds Hetzner credentials", ruleSecret, tree, false, false},
	{"~/.fly", "it holds Fly.io credentials", ruleSecret, tree, false, false},
	{"~/.terraform.d", "it holds Terraform credentials", ruleSecret, tree, false, false},
	{"~/.terraformrc", "it holds Terraform credentials", ruleSecret, tree, false, false},
	{"~/.pulumi", "it holds Pulumi credentials", ruleSecret, tree, false, false},
	{"~/.vault-token", "it is a Vault token", ruleSecret, tree, false, false},
	{"~/.kube", "it holds Kubernetes credentials", ruleSecret, tree, false, false},
	{"~/.docker", "it holds registry credentials", ruleSecret, tree, false, false},
	{"~/.config/containers", "it holds registry credentials", ruleSecret, tree, false, false},
	{"~/.config/helm", "it holds registry credentials", ruleSecret, tree, false, false},
	{"~/.netrc", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.pgpass", "it holds database passwords", ruleSecret, tree, false, false},
	{"~/.my.cnf", "it holds database passwords", ruleSecret, tree, false, false},
	{"~/.git-credentials", "it holds Git passwords", ruleSecret, tree, false, false},
	{"~/.config/git/credentials", "it holds Git passwords", ruleSecret, tree, false, false},
	{"~/.config/gh", "it holds GitHub credentials", ruleSecret, tree, false, false},
	{"~/.config/glab-cli", "it holds GitLab credentials", ruleSecret, tree, false, false},
	{"~/.config/hub", "it holds GitHub credentials", ruleSecret, tree, false, false},
	{"~/.npmrc", "it holds npm credentials", ruleSecret, tree, false, false},
	{"~/.yarnrc.yml", "it holds npm credentials", ruleSecret, tree, false, false},
	{"~/.pypirc", "it holds PyPI credentials", ruleSecret, tree, false, false},
	{"~/.config/pip", "it may hold credentials of a package index", ruleSecret, tree, false, false},
	{"~/.config/uv", "it may hold credentials of a package index", ruleSecret, tree, false, false},
	{"~/.cargo/credentials.toml", "it holds crates.io credentials", ruleSecret, tree, false, false},
	{"~/.gem/credentials", "it holds RubyGems credentials", ruleSecret, tree, false, false},
	{"~/.m2/settings.xml", "it holds Maven credentials", ruleSecret, tree, false, false},
	{"~/.gradle/gradle.properties", "it holds Gradle credentials", ruleSecret, tree, false, false},
	{"~/.config/rclone", "it holds storage credentials", ruleSecret, tree, false, false},
	{"~/.s3cfg", "it holds storage credentials", ruleSecret, tree, false, false},
	{"~/.boto", "it holds storage credentials", ruleSecret, tree, false, false},
	{"~/.cache/huggingface/token", "it is a Hugging Face token", ruleSecret, tree, false, false},
	{"~/.config/sops", "it holds keys", ruleSecret, tree, false, false},
	{"~/.config/age", "it holds keys", ruleSecret, tree, false, false},
	{"~/.password-store", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.local/share/keyrings", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.local/share/kwalletd", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.config/keepassxc", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.config/op", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.config/Bitwarden", "it holds passwords", ruleSecret, tree, false, false},
	{"~/.mozilla", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/.thunderbird", "it holds mail", ruleSecret, tree, false, false},
	{"~/.config/google-chrome", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/.config/chromium", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/.config/BraveSoftware", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/.config/microsoft-edge", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/snap/firefox", "it holds a browser's cookies and passwords", ruleSecret, tree, false, false},
	{"~/.Xauthority", "it opens the screen", ruleSecret, tree, false, false},
	{"~/.bash_history", "it holds what was typed, passwords included", ruleSecret, tree, false, false},
	{"~/.zsh_history", "it holds what was typed, passwords included", ruleSecret, tree, false, false},
	{"~/.python_history", "it holds what was typed, passwords included", ruleSecret, tree, false, false},
	{"~/.claude", "it holds an agent's credentials and settings", ruleSecret, tree, false, false},
	{"~/.claude.json", "it holds an agent's credentials and settings", ruleSecret, tree, false, false},
	{"~/.codex", "it holds an agent's credentials and settings", ruleSecret, tree, false, false},
	{"~/.gemini", "it holds an agent's credentials and settings", ruleSecret, tree, false, false},
	{"~/.cursor", "it holds an agent's credentials and settings", ruleSecret, tree, false, false},
	{"~/.config/github-copilot", "it holds an agent's credentials", ruleSecret, tree, false, false},
	{"~/.bitcoin", "it holds money", ruleSecret, tree, false, false},
	{"~/.ethereum", "it holds money", ruleSecret, tree, false, false},
	{"~/.electrum", "it holds money", ruleSecret, tree, false, false},

	{"~/.bashrc", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.bash_profile", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.bash_login", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.bash_logout", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.profile", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.zshrc", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.zshenv", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.zprofile", "the shell runs it", ruleRuns, tree, false, true},
	{"~/.gitconfig", "git runs what it names", ruleRuns, tree, false, true},
	{"~/.config", "programs start what it names", ruleRuns, tree, false, true},
	{"~/.local/bin", "the host runs what is in it", ruleRuns, tree, false, true},
	{"~/.local/share", "the desktop starts what is in it", ruleRuns, itself, false, true},
	{"~/.local/lib", "Python runs what is in it", ruleRuns, tree, false, true},
	{"~/bin", "the host runs what is in it", ruleRuns, tree, false, true},
	{"~/.vscode", "the editor runs what is in it", ruleRuns, tree, false, true},
	{"~/.vim", "the editor runs what is in it", ruleRuns, tree, false, true},
	{"~/.vimrc", "the editor runs it", ruleRuns, tree, false, true},
}
